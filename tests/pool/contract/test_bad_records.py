"""What is not of its type, or too long to be a name, is rejected alone, on every store the same."""

import logging

import numpy as np
import pytest
from sqlalchemy import insert

from agentworld.errors import InvalidRequestError
from agentworld.pool import schema
from agentworld.pool.bounds import MAX_NAME
from agentworld.pool.protocol import Rejected
from agentworld.pool.sql.statements import parameter, sql
from agentworld.records import (
    Exchange,
    FunctionCall,
    Message,
    NewTrajectory,
    Policy,
    Reward,
    Sampling,
    TextPart,
    ToolCall,
    Usage,
    VersionSpan,
)

from ..samples import ids, step

LONG = "".join(chr(0x4E00 + number * 7919 % 20_000) for number in range(16_000))  # Compresses to nothing shorter.
USER = {"role": "user", "content": "x"}
WRONG_TYPES = [
    ({"metadata": {"a": 10**5000}}, "digits"),
    ({"policy": {"model": "m"}}, "policy"),
    ({"usage": {"prompt_tokens": 3}}, "usage"),
    ({"sampling": {"temperature": 1.0}}, "sampling"),
    ({"version_spans": [{"start": 0, "version": 1}]}, "version_spans[0]"),
    ({"response_message": {"role": "assistant", "content": "x"}}, "response_message"),
    ({"prompt_messages": [Message(**USER), USER]}, "prompt_messages[1]"),
    ({"prompt_messages": [None]}, "prompt_messages[0]"),
    ({"prompt_messages": (Message(**USER) for _ in range(1))}, "prompt_messages"),
    ({"prompt_messages": [Message(role="user", content=b"x")]}, "messages"),
    ({"response_message": Message(role="assistant", content=[{"type": "text", "text": "x"}])}, "messages.content"),
    ({"response_message": Message(role="assistant", content=(TextPart(b"x"),))}, "messages"),
    ({"response_message": Message(role="assistant", tool_calls=(ToolCall("1", FunctionCall(b"f", "")),))}, "messages"),
    ({"tools": "x"}, "tools"),
    ({"tools": [{"a": {1, 2}}]}, "tools"),
    ({"agent": b"x"}, "agent"),
    ({"finish_reason": 7}, "finish_reason"),
    ({"policy": Policy(b"m", "r", 1)}, "policy.model"),
    ({"policy": Policy("m", "r", 1.0)}, "policy.version"),
    ({"usage": Usage(1.0, 2)}, "usage"),
    ({"version_spans": (VersionSpan("0", 1),)}, "version_spans"),
    ({"step_id": 5}, "step_id"),
    ({"trajectory_id": None}, "trajectory_id"),
    ({"group_id": 7}, "group_id"),
    ({"rewards": [1.0]}, "rewards"),
    ({"rewards": {1: 1.0}}, "rewards"),
    ({"reward": "1"}, "reward"),
    ({"labels": None}, "labels"),
    ({"metadata": []}, "metadata"),
    ({"metadata": {"a": b"x"}}, "metadata.a"),
    ({"metadata": {"a": {1, 2}}}, "metadata.a"),
    ({"metadata": {1: 2}}, "metadata"),
    ({"labels": {"a": {None: 2}}}, "labels.a"),
    ({"metadata": {"a": np.arange(3)}}, "metadata.a"),
    ({"sampling": Sampling(logit_bias={1: 1.0})}, "sampling.logit_bias"),
    ({"sampling": Sampling(tool_choice=b"x")}, "sampling.tool_choice"),
    ({"sampling": Sampling(stop=(b"x",))}, "sampling.stop[0]"),
    ({"response_logprobs": ["-0.5", "-1"]}, "response_logprobs"),
    ({"response_logprobs": [True, -0.5]}, "response_logprobs"),
    ({"response_logprobs": np.array(["-0.5", "-1"])}, "response_logprobs"),
    ({"response_logprobs": 1.0}, "response_logprobs"),
]
NAMES = ["channel", "agent", "model", "requested_model", "dialect", "vocabulary", "finish_reason"]


def test_what_is_of_a_wrong_type_is_rejected_alone(pool):
    stored, reasons = [], []
    for number, (change, path) in enumerate(WRONG_TYPES):
        values = {"trajectory_id": "t", "step_id": f"bad{number}", **change}
        if "prompt_messages" in change and not isinstance(change["prompt_messages"], list):
            values["prompt_messages"] = iter([Message(**USER)])  # Each store a fresh one.
        good = [step("t", step_id=f"{name}{number}") for name in "ab"]
        results = pool.append_steps([good[0], step(**values), good[1]])
        assert [result.outcome for result in results] == ["stored", "rejected", "stored"], change
        assert path in results[1].reason
        stored += [each.step_id for each in good]
        reasons.append(results[1].reason)
    assert ids(pool.list_steps(include=("tokens", "messages", "logprobs"), limit=1000)) == stored
    assert [letter.reason for letter in pool.dead_letters(limit=1000)] == reasons
    assert pool.stats().steps == len(stored)
    assert pool.check() == []


@pytest.mark.parametrize("record", [None, {"step_id": "bad", "trajectory_id": "t"}, "step", 7, b"\xff\x00"])
def test_what_is_no_step_is_rejected_alone(pool, record):
    results = pool.append_steps([step("t", step_id="a"), record, step("t", step_id="b")])
    assert [result.outcome for result in results] == ["stored", "rejected", "stored"]
    assert "must be a Step" in results[1].reason
    [letter] = pool.dead_letters()
    assert letter.record == repr(record)
    assert (letter.step_id, letter.trajectory_id) == ("", "")


def test_a_bad_choice_does_not_fail_the_others_of_its_call(pool):
    choices = [step("x", step_id="a", prompt_messages=None), step("x", step_id="bad", policy={"model": "m"})]
    call = Exchange(
        exchange_id="e", trajectory_id="t", dialect="chat", model="m", requested_model="m", messages=[], choices=choices
    )
    assert [result.outcome for result in pool.append_exchange(call)] == ["stored", "rejected"]


def test_a_rejected_record_is_kept_as_it_was_sent(pool):
    sent = Rejected("unknown field `x\0`", '{"step_id": "bad", "x": "\ud800\0"}' + "y" * 70_000, "bad", "t")
    results = pool.append_steps([step("t", step_id="a"), sent])
    assert [(result.step_id, result.outcome) for result in results] == [("a", "stored"), ("bad", "rejected")]
    [letter] = pool.dead_letters()
    assert (letter.step_id, letter.trajectory_id) == ("bad", "t")
    assert letter.reason == results[1].reason == "unknown field `x\\x00`"
    assert letter.record.startswith('{"step_id": "bad", "x": "\\ud800\\x00"}yyy')
    assert len(letter.record) == 65_536
    assert pool.stats().dead_letters == 1


def test_nothing_is_kept_of_a_rejected_record_of_what_was_deleted(pool):
    pool.append_steps([step("t", step_id="a"), step("u", step_id="b")])
    pool.delete_trajectories(["t"])
    pool.append_steps(
        [Rejected("bad", "secret", "c", "t"), Rejected("bad", "secret", "a", ""), Rejected("bad", "kept", "d", "u")]
    )
    assert [letter.record for letter in pool.dead_letters()] == ["", "", "kept"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_has_a_length_on_every_store(pool, name):
    fits, longer = LONG[:MAX_NAME], LONG[: MAX_NAME + 1]
    results = pool.append_steps(
        [step("t", step_id="a", **{name: fits}), step("t", **{name: longer}), step("t", **{name: LONG})]
    )
    assert [result.outcome for result in results] == ["stored", "rejected", "rejected"]
    assert all(name in result.reason for result in results[1:])
    assert getattr(pool.get_step("a"), name) == fits


def test_names_of_the_longest_fit_into_every_index(pool):
    name = "".join(chr(0x20000 + number * 7919 % 40_000) for number in range(MAX_NAME))  # Of 4 bytes each.
    policy = Policy(name, name, 1)
    pool.create_trajectory(NewTrajectory(trajectory_id="t", channel=name, agent=name, user=name))
    sent = step("t", step_id="a", policy=policy, channel=name, model=name, rewards={name: 1.0})
    assert pool.append_steps([sent])[0].outcome == "stored"
    pool.set_policy(policy)
    pool.complete_trajectory("t", "finished", 1.0)
    assert pool.get_step("a").policy == pool.get_trajectory("t").policy == policy
    assert pool.get_step("a").rewards == {name: 1.0}
    assert pool.list_trajectories(where=f"policy.model == '{name}'").items[0].user == name
    for bad in (Policy(LONG, "r", 1), Policy("m", LONG, 1)):
        with pytest.raises(InvalidRequestError):
            pool.set_policy(bad)
        assert pool.append_steps([step("t", policy=bad)])[0].outcome == "rejected"
    for name in ("channel", "agent", "user"):
        with pytest.raises(InvalidRequestError) as caught:
            pool.create_trajectory(NewTrajectory(trajectory_id="u", **{name: LONG}))
        assert caught.value.path == name
    with pytest.raises(InvalidRequestError):
        pool.add_rewards([Reward(value=1.0, step_id="a", name=LONG)])
    assert pool.append_steps([step("t", rewards={LONG: 1.0})])[0].outcome == "rejected"


def test_numbers_of_numpy_are_numbers(pool):
    sent = step(
        "t",
        step_id="a",
        reward=np.float64(1.5),
        rewards={"other": np.float32(0.5), "count": np.int64(3)},
        policy=Policy("m", "r", np.int64(3)),
        created_at=np.float64(5.0),
        metadata={"a": [np.float32(1.5), np.int8(2), np.bool_(True)]},
        labels={"b": np.float64(2.5)},
        sampling=Sampling(tool_choice=None),
        tools=[{"a": np.int64(1)}],
    )
    plain = step(
        "t",
        **{name: getattr(sent, name) for name in ("step_id", "response_ids", "response_message", "sampling")},
        reward=1.5,
        rewards={"other": 0.5, "count": 3},
        policy=Policy("m", "r", 3),
        created_at=5.0,
        metadata={"a": [1.5, 2, True]},
        labels={"b": 2.5},
        tools=[{"a": 1}],
    )
    assert [result.outcome for result in pool.append_steps([sent, plain])] == ["stored", "duplicate"]
    there = pool.get_step("a")
    assert there.rewards == {"other": 0.5, "count": 3.0, "reward": 1.5}
    assert (there.reward, there.policy, there.metadata) == (1.5, plain.policy, plain.metadata)
    assert (there.labels, there.tools) == (plain.labels, plain.tools)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), np.float32("nan"), "1", 10**400])
def test_a_reward_that_is_no_number_is_called_so(pool, value):
    [result] = pool.append_steps([step("t", reward=value)])
    assert result.reason.startswith("reward must be a finite number (at reward)")


def test_lists_stand_for_tuples_in_messages(pool):
    said = Message(role="assistant", content=[TextPart("x")], tool_calls=[ToolCall("1", FunctionCall("f", "{}"))])
    [result] = pool.append_steps([step("t", step_id="a", response_message=said)])
    assert result.outcome == "stored"
    there = pool.get_step("a").response_message
    assert (there.content, there.tool_calls) == ((TextPart("x"),), (ToolCall("1", FunctionCall("f", "{}")),))


def test_no_fault_is_logged_for_what_a_caller_sent(pool, caplog):
    with caplog.at_level(logging.WARNING, "agentworld.pool"):
        pool.append_steps([None, step("t", metadata={"a": 10**5000}), step("t", channel=LONG)])
    assert caplog.records == []


def test_a_value_too_long_for_an_index_fails_its_own_call_only(postgres_pool):
    add = sql(insert(schema.consumers).values(name=parameter("name"), epoch=parameter("epoch")))
    futures = [
        postgres_pool.submit_steps([step("t", step_id="a")]),
        postgres_pool._writer.submit(lambda txn: txn.execute(add, {"name": LONG, "epoch": 0})),
        postgres_pool.submit_steps([step("t", step_id="b")]),
    ]
    with pytest.raises(InvalidRequestError, match="cannot be stored"):
        futures[1].result()
    assert [futures[number].result()[0].outcome for number in (0, 2)] == ["stored", "stored"]
