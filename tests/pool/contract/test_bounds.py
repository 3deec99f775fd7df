"""Numbers out of range and JSON that is too deep: refused where they come in, alone, and never a crash later."""

import math
import time

import pytest

from agentworld.errors import InvalidRequestError, QueryError
from agentworld.records import (
    MAX_DEPTH,
    Annotation,
    BatchSpec,
    Exchange,
    Feedback,
    NewTrajectory,
    Policy,
    Reward,
    Sampling,
    Usage,
    VersionSpan,
)

from ..samples import finished, ids, step

HUGE = [2**31, 2**63, 2**64, 10**400, -1]


def nested(depth):
    value = "end"
    for _ in range(depth):
        value = {"a": value}
    return value


BAD_STEPS = [
    *[({name: value}, name) for name in ("choice_index", "prompt_length", "response_length") for value in HUGE],
    *[({"usage": Usage(prompt_tokens=value)}, "usage.prompt_tokens") for value in HUGE],
    *[({"usage": Usage(completion_tokens=value)}, "usage.completion_tokens") for value in HUGE],
    *[({"policy": Policy("m", "r", value)}, "policy.version") for value in HUGE[1:]],
    *[({"version_spans": (VersionSpan(0, value),)}, "version_spans[0].version") for value in HUGE[1:]],
    *[({"version_spans": (VersionSpan(value, 0),)}, "version_spans[0].start") for value in HUGE],
    *[({"sampling": Sampling(seed=value)}, "sampling.seed") for value in HUGE[1:4]],
    *[({"sampling": Sampling(stop_token_ids=(value,))}, "sampling.stop_token_ids[0]") for value in HUGE[1:]],
    *[({name: value}, name) for name in ("created_at", "latency_ms") for value in (math.nan, math.inf, 10**400)],
    *[({"rewards": {"x": value}}, "rewards.x") for value in (math.nan, 10**400)],
    ({"response_logprobs": [10**400, 0.0]}, "response_logprobs"),
    *[({name: nested(MAX_DEPTH + 1)}, name) for name in ("labels", "metadata")],
    *[({name: nested(depth)}, name) for name in ("labels", "metadata") for depth in (950, 5000)],
    *[({"tools": [nested(depth)]}, "tools") for depth in (MAX_DEPTH, 950, 5000)],
    ({"sampling": Sampling(tool_choice=nested(950))}, "sampling.tool_choice"),
    ({"sampling": Sampling(response_format=nested(950))}, "sampling.response_format"),
]
BARE = {"prompt_ids": None, "response_ids": None, "response_logprobs": None}


def test_a_step_out_of_bounds_is_rejected_alone(pool):
    stored = []
    for number, (change, path) in enumerate(BAD_STEPS):
        good = [step("t", step_id=f"{name}{number}") for name in "ab"]
        bad = step("t", **{**BARE, **change}, step_id=f"bad{number}")
        results = pool.append_steps([good[0], bad, good[1]])
        assert [result.outcome for result in results] == ["stored", "rejected", "stored"], change
        assert path in results[1].reason
        stored += [each.step_id for each in good]
        letter = pool.dead_letters(limit=1000)[-1]
        assert (letter.step_id, letter.reason) == (f"bad{number}", results[1].reason)
        assert f"bad{number}" in letter.record
    assert ids(pool.list_steps(include=("tokens", "messages", "logprobs"), limit=1000)) == stored
    assert len(pool.dead_letters(limit=1000)) == len(BAD_STEPS)


def test_what_is_just_in_bounds_is_stored_and_served(pool):
    deep = nested(MAX_DEPTH)
    sent = step(
        "t",
        labels=deep,
        metadata=deep,
        tools=[nested(MAX_DEPTH - 1)],
        choice_index=2**31 - 1,
        policy=Policy("m", "r", 2**63 - 1),
        sampling=Sampling(seed=2**63 - 1, tool_choice=deep),
    )
    pool.create_trajectory(NewTrajectory(trajectory_id="t", task=deep, metadata=deep, attempt=2**31 - 1))
    assert pool.append_steps([sent])[0].outcome == "stored"
    pool.complete_trajectory("t", "finished", 1.0)
    there = pool.get_step(sent.step_id)
    assert (there.labels, there.tools, there.policy, there.sampling) == (deep, sent.tools, sent.policy, sent.sampling)
    assert pool.list_trajectories(where="metadata.a.a is not null").items[0].task == deep
    assert pool.lease(BatchSpec(size=1), "c").items[0].trajectories[0].steps == [there]


def test_counts_of_many_steps_stay_whole_numbers(pool):
    for _ in range(3):
        pool.append_steps([step("t", **BARE, usage=Usage(2**31 - 1, 2**31 - 1))])
    assert pool.get_trajectory("t").prompt_tokens == 3 * (2**31 - 1)


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        *[({name: value}, name) for name in ("group_size", "rollout_index", "attempt") for value in HUGE],
        ({"group_size": 0}, "group_size"),
        ({"rollout_index": "1"}, "rollout_index"),
        *[({name: nested(depth)}, name) for name in ("task", "metadata") for depth in (MAX_DEPTH + 1, 950, 5000)],
    ],
)
def test_a_trajectory_out_of_bounds_is_refused(pool, settings, path):
    with pytest.raises(InvalidRequestError) as caught:
        pool.create_trajectory(NewTrajectory(trajectory_id="t", **settings))
    assert caught.value.path == path
    assert pool.list_trajectories().items == []


@pytest.mark.parametrize(
    ("change", "path"),
    [
        *[({"value": value}, "value") for value in (math.nan, math.inf, 10**400, "1", None)],
        *[({"created_at": at}, "created_at") for at in (math.nan, -1.0, 1e300, time.time() * 1000)],
        ({"source": 7}, "source"),
        *[({"details": nested(depth)}, "details") for depth in (MAX_DEPTH + 1, 950, 5000)],
    ],
)
def test_a_reward_out_of_bounds_is_refused(pool, change, path):
    finished(pool, "t")
    before = pool.stats()
    good = Reward(value=1.0, trajectory_id="t")
    with pytest.raises(InvalidRequestError) as caught:
        pool.add_rewards([good, Reward(**{"value": 1.0, "trajectory_id": "t", **change})])
    assert caught.value.path == f"rewards[1].{path}"
    if path == "created_at":
        for signal in (
            Feedback(kind="rating", value=1, trajectory_id="t", **change),
            Annotation(name="v", values=1.0, trajectory_id="t", **change),
        ):
            with pytest.raises(InvalidRequestError, match="created_at"):
                pool.add_signals([signal])
    assert pool.stats() == before


def test_a_completion_with_a_reward_out_of_bounds_is_refused(pool):
    pool.create_trajectory(NewTrajectory(trajectory_id="t"))
    with pytest.raises(InvalidRequestError):
        pool.complete_trajectory("t", "finished", 10**400)
    assert pool.get_trajectory("t").status == "open"


@pytest.mark.parametrize("version", HUGE[1:])
def test_a_policy_version_out_of_bounds_is_refused(pool, version):
    with pytest.raises(InvalidRequestError) as caught:
        pool.set_policy(Policy("m", "r", version))
    assert caught.value.path == "version"
    assert pool.gateway_state().policies == {}


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"retry_count": 2**63}, "retry_count"),
        ({"policy": Policy("m", "r", 2**63)}, "policy.version"),
        ({"latency_ms": math.inf}, "latency_ms"),
        ({"error": nested(950)}, "error"),
        ({"error": "text"}, "error"),
        ({"sampling": Sampling(response_format=nested(950))}, "sampling.response_format"),
    ],
)
def test_an_exchange_out_of_bounds_is_refused(pool, change, path):
    plain = {"exchange_id": "e", "dialect": "chat", "model": "m", "requested_model": "m", "messages": []}
    with pytest.raises(InvalidRequestError) as caught:
        pool.append_exchange(Exchange(trajectory_id="t", **plain, **change))
    assert caught.value.path == path
    assert pool.append_exchange(Exchange(trajectory_id="t", **plain, error={"code": "x"})) == []
    assert [kept.error for kept in pool.list_exchanges("t")] == [{"code": "x"}]


@pytest.mark.parametrize("after", [-1, 2**63, 10**400])
def test_a_sequence_number_out_of_bounds_is_refused(pool, after):
    for read in (pool.events, pool.dead_letters):
        with pytest.raises(InvalidRequestError) as caught:
            read(after)
        assert caught.value.path == "after"
    assert pool.events(2**63 - 1) == pool.dead_letters(2**63 - 1) == []


@pytest.mark.parametrize(
    "cursor", ["o" + "f" * 16, "offfffffffffffffffff", "o-5", "o+5", "o 5", "o1_0", "o", "O5", "o5\n"]
)
def test_a_cursor_that_no_page_gave_is_refused(pool, cursor):
    for read in (pool.list_steps, pool.list_trajectories):
        with pytest.raises(QueryError):
            read(cursor=cursor)
        with pytest.raises(QueryError):
            read(cursor=cursor, where="not late" if read == pool.list_steps else "open")
        assert read(cursor="o" + "7" + "f" * 15).items == []


@pytest.mark.parametrize("limit", [2**63, -(2**63), 10**400, "5", 1.5, True, None])
def test_a_limit_out_of_bounds_is_refused(pool, limit):
    for read in (pool.events, pool.dead_letters, pool.list_steps, pool.list_trajectories, pool.list_batches):
        with pytest.raises(InvalidRequestError):
            read(limit=limit)


@pytest.mark.parametrize("text", ["\ud800", "a\0"])
def test_a_channel_that_no_name_can_be_is_not_leased_from(pool, text):
    with pytest.raises(InvalidRequestError) as refused:
        pool.lease(BatchSpec(size=1, channel=text), "c")
    assert refused.value.path == "channel"


@pytest.mark.parametrize("name", ["created_at", "latency_ms"])
def test_times_of_any_whole_number_are_held_as_floats(pool, name):
    sent = [step("t", step_id="sound"), *[step("t", step_id=f"s{at}", **{name: at}) for at in (7, 2**62, 2**80)]]
    assert {one.outcome for one in pool.append_steps(sent)} == {"stored"}
    assert [one.outcome for one in pool.append_steps(sent)] == ["duplicate"] * 4
    read = [getattr(pool.get_step(one.step_id), name) for one in sent[1:]]
    assert (read, {type(one) for one in read}) == ([7.0, 2.0**62, 2.0**80], {float})
    assert pool.check() == []
