import math

import msgspec
import pytest

from agentworld.errors import ConflictError, InvalidRequestError, NotFoundError, QueryError
from agentworld.records import (
    Exchange,
    FunctionCall,
    MediaPart,
    Message,
    NewTrajectory,
    Policy,
    Sampling,
    Step,
    TextPart,
    ToolCall,
    Usage,
    VersionSpan,
)

from ..samples import ids, step

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"z": 1, "a": {"y": 2, "b": None}}}}]
CALL = ToolCall(id="call_0", function=FunctionCall(name="f", arguments='{"b": 1,  "a": [}\x00'))
MESSAGES = [
    Message(role="system", content=""),
    Message(role="user", content=(TextPart("look\x00"), MediaPart("ab" * 16, "image/png", "low"))),
    Message(role="assistant", content=None, reasoning="hm", tool_calls=(CALL, CALL)),
    Message(role="tool", content="[]", tool_call_id="call_0", name="f"),
]


def full_step(**changes):
    values = {
        "step_id": "s",
        "trajectory_id": "t",
        "choice_index": 1,
        "parent_step_id": "p",
        "fork_reason": "template",
        "agent": "a",
        "model": "m",
        "requested_model": "gpt",
        "policy": Policy("m", "r", 4),
        "version_spans": (VersionSpan(0, 4), VersionSpan(1, 5)),
        "dialect": "chat",
        "token_source": "engine",
        "vocabulary": "v",
        "prompt_ids": list(range(1000, 1400)),
        "response_ids": [7, 150_000, 4_294_967_295],
        "response_mask": [1, 0, 1],
        "response_logprobs": [-0.25, None, -3.0],
        "logprob_space": "processed",
        "prompt_messages": MESSAGES,
        "tools": TOOLS,
        "response_message": Message(role="assistant", content="ok", tool_calls=(CALL,)),
        "sampling": Sampling(temperature=0.7, stop=("x",), logit_bias={"5": 1.0}, n=2),
        "finish_reason": "tool_calls",
        "usage": Usage(400, 3),
        "rewards": {"format": 0.5},
        "reward": 1.0,
        "labels": {"quality": "good"},
        "created_at": 12.5,
        "latency_ms": 3.5,
        "metadata": {"k": {"z": 1, "a": [None, "\x00", 2**60]}},
    }
    return Step(**{**values, **changes})


def test_a_step_reads_back_exactly(pool):
    assert pool.append_steps([full_step()])[0].outcome == "stored"
    expected = full_step(
        step_index=0,
        is_last=True,
        prompt_length=400,
        response_length=3,
        rewards={"format": 0.5, "reward": 1.0},
    )
    there = pool.get_step("s")
    assert there == expected
    # Structs compare dicts without their order, which matters to whoever renders the tools again.
    assert msgspec.json.encode(there) == msgspec.json.encode(expected)


@pytest.mark.parametrize("include", [(), ("tokens",), ("messages",), ("logprobs",), ("tokens", "logprobs")])
def test_include_decides_what_is_read(pool, include):
    pool.append_steps([full_step()])
    there = pool.get_step("s", include=include)
    assert (there.prompt_ids is not None) == ("tokens" in include)
    assert (there.response_mask is not None) == ("tokens" in include)
    assert (there.prompt_messages is not None) == ("messages" in include)
    assert (there.tools is not None) == ("messages" in include)
    assert (there.response_logprobs is not None) == ("logprobs" in include)
    assert (there.prompt_length, there.response_length) == (400, 3)
    assert pool.list_steps(include=include).items == [there]
    with pytest.raises(InvalidRequestError, match="secrets"):
        pool.get_step("s", include=("secrets",))


@pytest.mark.parametrize(
    "absent",
    [
        {"prompt_ids": None, "response_ids": None, "response_mask": None, "response_logprobs": None, "usage": None},
        {"prompt_messages": None, "response_message": None, "tools": None},
        {"prompt_messages": []},
        {"tools": []},
        {"response_message": None},
        {"response_ids": [], "response_mask": [], "response_logprobs": [], "usage": None},
        {"prompt_ids": [], "usage": None},
        {"prompt_ids": list(range(128)), "response_ids": [], "response_mask": None, "response_logprobs": None},
    ],
)
def test_absent_and_empty_stay_apart(pool, absent):
    spans = () if absent.get("response_ids") == [] else (VersionSpan(0, 4), VersionSpan(1, 5))
    sent = full_step(**{"usage": None, "version_spans": spans, **absent})
    pool.append_steps([sent])
    there = pool.get_step("s")
    for name in ("prompt_ids", "response_ids", "response_logprobs", "prompt_messages", "response_message", "tools"):
        assert getattr(there, name) == getattr(sent, name)
    assert there.excluded_reason is None


def test_text_only_steps_keep_the_lengths_that_usage_tells(pool):
    bare = {"prompt_ids": None, "response_ids": None, "response_logprobs": None}
    pool.append_steps([step("t", step_id="s", usage=Usage(12, 3), **bare)])
    there = pool.get_step("s")
    assert (there.prompt_ids, there.prompt_length, there.response_length) == (None, 12, 3)
    assert pool.stats().tokens_flat == 0


def test_a_mask_of_ones_and_none_are_the_same(pool):
    pool.append_steps([step("t", step_id="s", response_ids=[1, 2], response_mask=[1, 1])])
    assert pool.get_step("s").response_mask == [1, 1]


def test_log_probabilities_that_are_not_finite_become_null(pool):
    values = [-1.0, float("nan"), float("-inf"), float("inf"), -1e300, None]
    pool.append_steps([step("t", step_id="s", response_ids=list(range(6)), response_logprobs=values)])
    assert pool.get_step("s").response_logprobs == [-1.0, None, None, None, None, None]
    assert pool.get_step("s").excluded_reason is None


def test_the_same_content_again_is_a_duplicate(pool):
    first = pool.append_steps([full_step()])
    before, events = pool.stats(), pool.events()
    again = pool.append_steps([full_step()])
    assert (first[0].outcome, again[0].outcome, again[0].step_index) == ("stored", "duplicate", 0)
    assert (pool.stats(), pool.events()) == (before, events)


@pytest.mark.parametrize(
    "change",
    [
        {"response_ids": [7, 150_000, 1]},
        {"prompt_ids": list(range(1001, 1401))},
        {"response_mask": [1, 1, 1]},
        {"response_logprobs": [-0.25, -1.0, -3.0]},
        {"response_logprobs": None},
        {"prompt_messages": MESSAGES[:3]},
        {"response_message": Message(role="assistant", content=None, tool_calls=(CALL,))},
        {"tools": []},
        {"tools": None},
        {"metadata": {}},
        {"reward": None},
        {"agent": None},
        {"prompt_ids": list(range(1000, 1399)), "response_ids": [1399, 7, 150_000, 4_294_967_295]},
    ],
)
def test_other_content_under_an_id_is_a_visible_conflict_and_leaves_no_trace(pool, change):
    pool.append_steps([full_step()])
    before, kept = pool.stats(), pool.get_step("s")
    result = pool.append_steps([full_step(**change)])[0]
    assert result.outcome == "conflict"
    assert result.reason
    assert (pool.stats(), pool.get_step("s")) == (before, kept)


@pytest.mark.parametrize(
    "bad",
    [
        {"step_id": "a/b"},
        {"step_id": "self", "supersedes": "self"},
        {"agent": "\ud800"},
        {"model": "a\x00b"},
        {"prompt_messages": [Message(role="user", content=5)]},
        {"response_message": Message(role="nobody", content="")},
        {"tools": [{"name": math.nan}]},
        {"tools": "x"},
        {"metadata": {"x": [math.inf]}},
        {"metadata": {"x": object()}},
        {"prompt_ids": [-1]},
        {"response_ids": [2**32]},
        {"response_ids": [1.5]},
        {"response_mask": [0, 2]},
        {"response_logprobs": ["a"]},
        {"rewards": {"x": math.nan}},
        {"reward": math.inf},
        {"reward": 1.0, "rewards": {"reward": 2.0}},
    ],
)
def test_a_record_that_cannot_be_stored_fails_alone(pool, bad):
    good = [step("t"), step("t")]
    results = pool.append_steps([good[0], step("t", **bad), good[1]])
    assert [result.outcome for result in results] == ["stored", "rejected", "stored"]
    assert results[1].reason
    assert ids(pool.list_steps()) == [one.step_id for one in good]
    letters = pool.dead_letters()
    assert [letter.reason for letter in letters] == [results[1].reason]
    assert letters[0].record
    assert pool.dead_letters(after=letters[0].sequence) == []
    assert pool.stats().dead_letters == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"response_logprobs": [-0.5]}, "quarantined: 1 response_logprobs for 2 response_ids"),
        ({"response_mask": [1, 1, 1]}, "quarantined: 3 response_mask for 2 response_ids"),
        ({"usage": Usage(3, 9)}, "quarantined: usage.completion_tokens is 9 but there are 2 ids"),
        ({"usage": Usage(4, 2)}, "quarantined: usage.prompt_tokens is 4 but there are 3 ids"),
        ({"prompt_length": 7}, "quarantined: prompt_length is 7 but there are 3 ids"),
        (
            {"prompt_ids": None},
            "quarantined: prompt_ids and response_ids go together, one is missing",
        ),
        (
            {"response_ids": None, "prompt_ids": None},
            "quarantined: log-probabilities or mask without response_ids",
        ),
    ],
)
def test_counts_that_disagree_are_quarantined_with_the_counts(pool, change, reason):
    sent = step("t", step_id="s", **change)
    result = pool.append_steps([sent])[0]
    assert (result.outcome, result.reason) == ("stored", reason)
    there = pool.get_step("s")
    assert (there.excluded_reason, there.readiness) == (reason, "excluded")
    for name in ("prompt_ids", "response_ids", "response_logprobs"):
        assert getattr(there, name) == getattr(sent, name)
    if sent.response_mask is not None:
        assert there.response_mask == sent.response_mask
    assert pool.stats().excluded_steps == 1


@pytest.mark.parametrize(
    ("spans", "reason"),
    [
        ([(0, 3), (0, 4)], "quarantined: version_spans start at [0, 0], which does not ascend from 0"),
        ([(0, 3), (2, 4), (1, 5)], "quarantined: version_spans start at [0, 2, 1], which does not ascend from 0"),
        ([(1, 3)], "quarantined: version_spans start at [1], which does not ascend from 0"),
        ([(0, 3), (3, 4)], "quarantined: version_spans start at 3 in 3 response_ids"),
        ([(0, 4), (1, 5)], "quarantined: policy.version is 3 but version_spans begin with 4"),
        ([(0, 3), (2, 4)], None),
        ([(0, 3)], None),
    ],
)
def test_spans_of_versions_that_cannot_be_are_quarantined(pool, spans, reason):
    spans = tuple(VersionSpan(*span) for span in spans)
    ids = {"response_ids": [7, 8, 9], "response_logprobs": [-0.5] * 3}
    pool.append_steps([step("t", step_id="s", policy=Policy("m", "r", 3), version_spans=spans, **ids)])
    there = pool.get_step("s")
    assert (there.excluded_reason, there.version_spans) == (reason, spans)


def test_an_empty_reply_has_one_version(pool):
    none = {"response_ids": [], "response_logprobs": []}
    pool.append_steps([step("t", step_id="s", policy=None, version_spans=(VersionSpan(0, 3),), **none)])
    assert pool.get_step("s").excluded_reason is None


def test_an_aborted_reply_and_a_given_reason_exclude(pool):
    pool.append_steps([step("t", step_id="a", finish_reason="abort"), step("t", step_id="b", excluded_reason="mine")])
    assert [pool.get_step(name).excluded_reason for name in "ab"] == ["aborted", "mine"]


def test_a_late_step_is_kept_and_does_not_revive_its_trajectory(pool):
    pool.create_trajectory(NewTrajectory(trajectory_id="t"))
    pool.append_steps([step("t", step_id="a")])
    pool.complete_trajectory("t", "finished", 1.0)
    late = step("t", step_id="b")
    assert pool.append_steps([late])[0].outcome == "late"
    assert pool.append_steps([late])[0].outcome == "duplicate"
    there = pool.get_step("b")
    assert (there.late, there.excluded_reason, there.readiness, there.is_last) == (True, "late", "excluded", False)
    assert pool.get_trajectory("t").status == "finished"
    assert pool.get_step("a").is_last


def test_a_retry_supersedes_and_the_first_stays(pool):
    pool.append_steps([step("t", step_id="a"), step("t", step_id="b")])
    assert pool.get_step("b").is_last
    pool.append_steps([step("t", step_id="c", supersedes="b")])
    first, retry = pool.get_step("b"), pool.get_step("c")
    assert (first.excluded_reason, first.is_last, first.readiness) == ("superseded", False, "excluded")
    assert (retry.supersedes, retry.excluded_reason, retry.is_last) == ("b", None, True)
    assert pool.stats().excluded_steps == 1


def test_a_retry_that_is_excluded_itself_leaves_the_one_before_last(pool):
    pool.append_steps([step("t", step_id="a"), step("t", step_id="b")])
    pool.append_steps([step("t", step_id="c", supersedes="b", finish_reason="abort")])
    assert [pool.get_step(name).is_last for name in "abc"] == [True, False, False]


def test_only_steps_of_the_same_trajectory_are_superseded(pool):
    pool.append_steps([step("t", step_id="a")])
    results = pool.append_steps([step("u", step_id="b", supersedes="a"), step("t", step_id="c", supersedes="gone")])
    assert [result.outcome for result in results] == ["stored", "stored"]
    assert pool.get_step("a").excluded_reason is None


def test_indexes_count_up_in_each_trajectory(pool):
    results = pool.append_steps([step("t"), step("u"), step("t"), step("u"), step("t")])
    assert [result.step_index for result in results] == [0, 0, 1, 1, 2]


def test_a_step_takes_channel_and_group_from_its_trajectory(pool):
    pool.create_trajectory(NewTrajectory(trajectory_id="t", channel="val", group_id="g"))
    pool.append_steps([step("t", step_id="a"), step("t", step_id="b", channel="judge")])
    assert [(pool.get_step(name).channel, pool.get_step(name).group_id) for name in "ab"] == [
        ("val", "g"),
        ("judge", "g"),
    ]


def test_lists_filter_and_page(pool):
    pool.create_trajectory(NewTrajectory(trajectory_id="u", group_id="g"))
    names = [f"n{number}" for number in range(6)]
    pool.append_steps([step("tu"[number % 2], step_id=name) for number, name in enumerate(names)])
    assert ids(pool.list_steps(trajectory_id="t")) == names[::2]
    assert ids(pool.list_steps(group_id="g", order="newest")) == names[1::2][::-1]
    assert ids(pool.list_steps(channel="val")) == []
    page = pool.list_steps(limit=4)
    assert ids(page) + ids(pool.list_steps(cursor=page.next_cursor)) == names
    with pytest.raises(NotFoundError):
        pool.get_step("nowhere")


def exchange(**changes):
    values = {
        "exchange_id": "e",
        "trajectory_id": "t",
        "dialect": "chat",
        "model": "m",
        "requested_model": "gpt",
        "messages": MESSAGES,
        "tools": TOOLS,
        "sampling": Sampling(temperature=1.0),
        "group_id": "g",
        "channel": "val",
        "agent": "a",
        "policy": Policy("m", "r", 1),
        "retry_count": 2,
        "body_digest": "00",
        "created_at": 5.0,
        "latency_ms": 9.0,
    }
    return Exchange(**{**values, **changes})


def test_an_exchange_gives_its_choices_what_they_leave_open(pool):
    choices = [
        Step(step_id=f"s{number}", trajectory_id="t", choice_index=number, prompt_ids=[1], response_ids=[number])
        for number in range(2)
    ]
    sent = exchange(choices=choices)
    assert [result.outcome for result in pool.submit_exchange(sent).result()] == ["stored", "stored"]
    there = pool.get_step("s1")
    assert (there.exchange_id, there.choice_index, there.dialect, there.requested_model) == ("e", 1, "chat", "gpt")
    assert (there.prompt_messages, there.tools, there.policy) == (MESSAGES, TOOLS, Policy("m", "r", 1))
    assert (there.channel, there.group_id, there.created_at, there.latency_ms) == ("val", "g", 5.0, 9.0)
    assert [result.outcome for result in pool.append_exchange(sent)] == ["duplicate", "duplicate"]
    kept = pool.list_exchanges("t")
    assert kept == [exchange(messages=[], tools=[])]
    assert (pool.stats().exchanges, pool.stats().failed_exchanges, pool.stats().steps) == (1, 0, 2)


def test_a_failed_call_is_kept_without_steps(pool):
    error = {"code": "context_length_exceeded", "message": "too long"}
    assert pool.append_exchange(exchange(error=error)) == []
    assert pool.list_exchanges("t")[0].error == error
    assert pool.get_trajectory("t").step_count == 0
    assert (pool.stats().exchanges, pool.stats().failed_exchanges) == (1, 1)
    assert pool.events()[-1].kind == "exchange.failed"
    with pytest.raises(ConflictError):
        pool.append_exchange(exchange(error={"code": "other"}))
    assert pool.list_exchanges("t", limit=1)[0].error == error


def test_calls_are_listed_from_either_end(pool):
    for number in range(4):
        pool.append_exchange(exchange(exchange_id=f"e{number}", error={"code": "x"}))
    pool.append_exchange(exchange(exchange_id="other", trajectory_id="u", error={"code": "x"}))

    def listed(**options):
        return [kept.exchange_id for kept in pool.list_exchanges("t", **options)]

    assert listed() == ["e0", "e1", "e2", "e3"]
    assert listed(order="newest") == ["e3", "e2", "e1", "e0"]
    assert listed(order="newest", limit=2) == ["e3", "e2"]
    assert listed(order="oldest", limit=2) == ["e0", "e1"]
    with pytest.raises(QueryError, match="oldest or newest"):
        listed(order="best")


def test_an_exchange_with_a_bad_id_is_refused(pool):
    with pytest.raises(InvalidRequestError):
        pool.append_exchange(exchange(exchange_id="a b"))
    with pytest.raises(NotFoundError):
        pool.get_trajectory("t")
