"""Digests of steps and rows: the same for the same content however it comes, another for any other."""

import itertools
import math

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentworld.curation.datasets.building import arrays_of
from agentworld.curation.datasets.digests import (
    StepDigests,
    VersionDigest,
    canonical,
    manifest_digest,
    row_digest,
)
from agentworld.curation.datasets.reading import steps_of
from agentworld.pool.arrays import steps_as_arrays
from agentworld.records import (
    DatasetRow,
    DatasetVersion,
    Feedback,
    FrozenStep,
    FunctionCall,
    MediaPart,
    Message,
    Policy,
    Sampling,
    Selection,
    Step,
    TextPart,
    ToolCall,
    VersionSpan,
    exact_json,
)
from tests.examples import examples

_numbers = itertools.count()
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"a": 1, "b": [2]}}}
BASE = Step(
    step_id="s",
    trajectory_id="t",
    prompt_ids=[1, 2],
    response_ids=[3, 4],
    response_mask=[1, 0],
    response_logprobs=[-0.5, None],
    logprob_space="raw",
    prompt_messages=[Message(role="user", content="question")],
    response_message=Message(role="assistant", content="", reasoning="why"),
    tools=[TOOL],
    model="m",
    policy=Policy("m", "r", 1),
    sampling=Sampling(temperature=1.0),
    token_source="engine",
    finish_reason="stop",
)
# Each is another content, and no two of them are the same.
OTHER = [
    {"prompt_ids": [1, 3]},
    {"prompt_ids": [1]},
    {"prompt_ids": [1, 2, 3], "response_ids": [4, 5]},
    {"prompt_ids": None, "response_ids": None, "response_mask": None, "response_logprobs": None},
    {"response_ids": [3, 5]},
    {"response_mask": [0, 1]},
    {"response_mask": None},
    {"response_logprobs": [-0.5, -0.25]},
    {"response_logprobs": [None, -0.5]},
    {"response_logprobs": [-0.5, 0.0]},
    {"response_logprobs": None},
    {"logprob_space": "processed"},
    {"prompt_messages": None},
    {"prompt_messages": []},
    {"prompt_messages": [Message(role="user", content="question"), Message(role="user", content="")]},
    {"prompt_messages": [Message(role="user", content="question"), Message(role="user")]},
    {"prompt_messages": [Message(role="system", content="question")]},
    {"prompt_messages": [Message(role="user", content=(TextPart("question"),))]},
    {"prompt_messages": [Message(role="user", content=(MediaPart("00" * 16, "image/png"),))]},
    {"prompt_messages": [Message(role="user", content="question\ud800")]},
    {"response_message": None},
    {"response_message": Message(role="assistant", reasoning="why")},
    {"response_message": Message(role="assistant", content="")},
    {"response_message": Message(role="assistant", content="why")},
    {
        "response_message": Message(
            role="assistant", content="", reasoning="why", tool_calls=(ToolCall("c", FunctionCall("add", "{}")),)
        )
    },
    {"tools": None},
    {"tools": [TOOL, TOOL]},
    {"model": None},
    {"model": "n"},
    {"policy": None},
    {"policy": Policy("m", "r", 2)},
    {"version_spans": (VersionSpan(1, 2),)},
    {"sampling": None},
    {"sampling": Sampling(temperature=0.5)},
    {"sampling": Sampling(temperature=1.0, stop=("a",))},
    {"token_source": "submitted"},
    {"finish_reason": "length"},
    {"vocabulary": "v"},
    {"parent_step_id": "p"},
    {"fork_reason": "subagent"},
    {"agent": "a"},
]
# None of these is content.
SAME = [
    {"rewards": {"reward": 1.0}, "reward": 1.0, "labels": {"a": 1}, "readiness": "ready", "late": True},
    {"created_at": 5.0, "latency_ms": 3.0, "metadata": {"a": 1}, "channel": "val", "annotations": ["x"]},
    {"response_logprobs": [-0.5, math.nan]},
    {"tools": [{"function": {"parameters": {"b": [2], "a": 1}, "name": "add"}, "type": "function"}]},
    {name: np.array(getattr(BASE, name)) for name in ("prompt_ids", "response_ids", "response_mask")},
    {"response_logprobs": np.array([-0.5, np.nan], np.float32)},
]


def of(step, **changes):
    return StepDigests().of(msgspec.structs.replace(step, **changes))


def test_any_other_content_has_another_digest():
    found = [of(BASE), *(of(BASE, **changes) for changes in OTHER)]
    assert [len(one) for one in found] == [32] * len(found)
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("changes", SAME, ids=lambda changes: " ".join(changes))
def test_what_is_no_content_or_another_spelling_of_it_changes_nothing(changes):
    assert of(BASE, **changes) == of(BASE)


def test_what_means_the_same_is_the_same():
    bare = {"response_mask": None, "response_logprobs": None}
    assert of(BASE, response_mask=[1, 1]) == of(BASE, response_mask=None)
    assert of(BASE, tools=[]) == of(BASE, tools=None)
    assert of(BASE, prompt_ids=[], response_ids=[], **bare) == of(BASE, prompt_ids=None, response_ids=None, **bare)
    pair = [Message(role="user", content="\ud83d\ude00")]
    assert of(BASE, prompt_messages=pair) == of(BASE, prompt_messages=[Message(role="user", content="\U0001f600")])


texts = st.text(st.characters(codec=None), max_size=8)
messages = st.builds(Message, role=st.sampled_from(["user", "assistant", "tool"]), content=st.none() | texts)
ids = st.lists(st.integers(0, 2**32 - 1), max_size=5)
logprobs = st.none() | st.floats(-100, 0, width=32) | st.just(-0.0)


@st.composite
def conversations(draw):
    """Steps of which many extend one of those before."""
    prompts, tokens, steps = [[]], [[]], []
    for number in range(draw(st.integers(1, 8))):
        prompt = draw(st.sampled_from(prompts)) + draw(st.lists(messages, max_size=3))
        before = draw(st.sampled_from(tokens)) + draw(ids)
        reply = draw(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1), logprobs), min_size=1, max_size=4))
        said = draw(messages)
        prompts.append([*prompt, said])
        tokens.append([*before, *(one[0] for one in reply)])
        fields = {"prompt_messages": prompt, "response_message": said, "prompt_ids": before}
        fields |= dict(
            zip(
                ("response_ids", "response_mask", "response_logprobs"), map(list, zip(*reply, strict=True)), strict=True
            )
        )
        steps.append(Step(step_id=f"s{number}", trajectory_id="t", token_source="submitted", **fields))
    return steps


@settings(max_examples=examples(40))
@given(conversations())
def test_a_digest_depends_on_nothing_that_was_digested_before_and_on_no_form_of_the_arrays(steps):
    alone = [of(step) for step in steps]
    together, by_arrays = StepDigests(), StepDigests()
    assert [together.of(step) for step in steps] == alone
    arrays = {one.step_id: one for one in steps_as_arrays(steps)}
    assert [
        by_arrays.of(
            msgspec.structs.replace(
                step, prompt_ids=None, response_ids=None, response_mask=None, response_logprobs=None
            ),
            arrays[step.step_id],
        )
        for step in steps
    ] == alone


@pytest.mark.parametrize("pool", ["sqlite", "postgres"], indirect=True)
@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=conversations())
def test_steps_have_the_same_digests_in_every_store(pool, memory, steps):
    number = next(_numbers)
    sent = [
        msgspec.structs.replace(each, step_id=f"{each.step_id}-{number}", trajectory_id=f"t{number}") for each in steps
    ]
    found = []
    for store in (pool, memory):
        outcomes = [one.outcome for one in store.append_steps(sent)]
        digests, arrays = StepDigests(), arrays_of(store, f"t{number}")
        kept = list(steps_of(store, f"t{number}", include=("messages",)))
        found.append((outcomes, [digests.of(step, arrays.get(step.step_id)) for step in kept]))
    assert found[0] == found[1]
    assert len(found[0][1]) == len(steps)
    assert [of(step) for step in steps_of(pool, f"t{number}")] == found[0][1]


@settings(max_examples=examples(40))
@given(
    st.recursive(
        texts | st.integers() | st.booleans() | st.none(), lambda inner: st.dictionaries(texts, inner), max_leaves=8
    )
)
def test_json_is_the_same_after_it_was_stored_as_json(value):
    assert canonical(exact_json.decode(exact_json.encode(value))) == canonical(value)


ROW = DatasetRow(
    position=3,
    trajectory_id="t",
    steps=[FrozenStep("s", "00" * 16, {"a": 0.0}, None, {"x": None}), FrozenStep("r", "11" * 16)],
    rewards={"reward": 0.5},
    reward=0.5,
    labels={"a": 1},
    feedback=[Feedback(kind="rating", feedback_id="f", trajectory_id="t", value=1)],
)


def test_a_row_has_everything_in_its_digest_but_its_position():
    changes = [
        {"trajectory_id": "u"},
        {"split": "test"},
        {"steps": ROW.steps[:1]},
        {"steps": ROW.steps[::-1]},
        {"steps": [msgspec.structs.replace(ROW.steps[0], rewards={"a": 1.0}), ROW.steps[1]]},
        {"steps": [msgspec.structs.replace(ROW.steps[0], rewards={}), ROW.steps[1]]},
        {"steps": [msgspec.structs.replace(ROW.steps[0], labels={}), ROW.steps[1]]},
        {"steps": [msgspec.structs.replace(ROW.steps[0], reward=0.0), ROW.steps[1]]},
        {"task_key": "k"},
        {"cluster": "t"},
        {"rewards": {"reward": 0.5, "b": 0.0}},
        {"reward": None},
        {"labels": {"a": True}},
        {"labels": {"a": None}},
        {"weight": 0.0},
        {"task_digest": "00" * 16},
        {"group_key": "00" * 16},
        {"feedback": []},
        {"feedback": [msgspec.structs.replace(ROW.feedback[0], comment="")]},
    ]
    found = [row_digest(ROW), *(row_digest(msgspec.structs.replace(ROW, **change)) for change in changes)]
    assert len(set(found)) == len(found)
    negative = [msgspec.structs.replace(ROW.steps[0], rewards={"a": -0.0}), ROW.steps[1]]  # SQLite has no such zero.
    for same in ({"position": 9}, {"digest": "x"}, {"steps": negative}):
        assert row_digest(msgspec.structs.replace(ROW, **same)) == row_digest(ROW)
    assert row_digest(exact_json.decode(exact_json.encode(ROW), DatasetRow)) == row_digest(ROW)


def test_a_version_is_its_rows_with_their_splits_in_order():
    def digest(*rows):
        made = VersionDigest()
        for row in rows:
            made.add(row)
        return made.hexdigest()

    one, other = (msgspec.structs.replace(ROW, digest=digest * 16) for digest in ("0a", "0b"))
    moved = msgspec.structs.replace(one, split="test")
    found = [digest(), digest(one), digest(moved), digest(one, other), digest(other, one), digest(one, one)]
    assert len(set(found)) == len(found)


def test_a_manifest_is_known_by_all_of_it():
    made = DatasetVersion(version="d@0", name="d", digest="0", selection=Selection(where="ready"), created_at=2.0)
    for change in ({"note": ""}, {"rows": 1}, {"selection": Selection()}, {"created_at": 3.0}, {"parents": ["d@1"]}):
        assert manifest_digest(msgspec.structs.replace(made, **change)) != manifest_digest(made)
    assert manifest_digest(msgspec.structs.replace(made, manifest_digest="0")) == manifest_digest(made)


def test_a_digest_does_not_depend_on_what_was_digested_before():
    """Tools that are equal in Python, as 1, 1.0 and true are, are other tools."""
    steps = [
        msgspec.structs.replace(
            BASE, tools=[{"type": "function", "function": {"name": "add", "parameters": {"a": one}}}]
        )
        for one in (1, True, 1.0)
    ]
    alone = [StepDigests().of(step) for step in steps]
    assert len(set(alone)) == 3
    for order in itertools.permutations(range(3)):
        digests = StepDigests()
        assert [digests.of(steps[each]) for each in order] == [alone[each] for each in order]
