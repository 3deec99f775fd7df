"""Frozen trajectories come back from their way as they were, whatever their steps have in common."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.curation.datasets.frozen import FrozenTrajectory, SkippedRow
from agentworld.curation.datasets.travelling import PackedTrajectory, pack, unpack
from agentworld.errors import InvalidRequestError
from agentworld.pool.arrays import StepArrays
from agentworld.records import DatasetRow, Message, Step, Trajectory, exact_json
from tests.examples import examples

TOOLS = (None, [], [{"n": 1}], [{"n": 1.0}], [{"n": True}])
ids = st.lists(st.integers(0, 3), max_size=5)


@st.composite
def trajectories(draw):
    steps, arrays = [], {}
    for number in range(draw(st.integers(0, 7))):
        parent = draw(st.sampled_from(steps)) if steps else None
        messages = draw(st.lists(st.sampled_from([Message(role="user", content=text) for text in "ab"]), max_size=2))
        if parent is not None and draw(st.booleans()):
            reply = [] if parent.response_message is None else [parent.response_message]
            messages = [*(parent.prompt_messages or []), *reply, *messages]
        reply = draw(st.sampled_from([None, Message(role="assistant", content="half \ud800")]))
        steps.append(
            Step(step_id=f"s{number}", trajectory_id="t", response_message=reply, tools=draw(st.sampled_from(TOOLS)),
                 prompt_messages=draw(st.sampled_from([None, messages, messages])), created_at=0.5)
        )  # fmt: skip
        sequence = draw(ids)
        if parent is not None and parent.step_id in arrays and draw(st.booleans()):
            sequence = [*arrays[parent.step_id].ids.tolist()[: draw(st.integers(0, 9))], *sequence]
        if sequence:
            length = draw(st.integers(0, len(sequence)))
            floats = np.asarray([0.1 if at % 2 else np.nan for at in range(len(sequence) - length)], np.float32)
            arrays[f"s{number}"] = StepArrays(
                step_id=f"s{number}", trajectory_id="t", prompt_length=length, ids=np.asarray(sequence, np.uint32),
                mask=draw(st.sampled_from([None, np.arange(len(sequence) - length, dtype=np.uint8) % 2])),
                logprobs=draw(st.sampled_from([None, floats])),
            )  # fmt: skip
    row = DatasetRow(position=3, trajectory_id="t")
    return FrozenTrajectory(row=row, trajectory=Trajectory(trajectory_id="t"), steps=steps, arrays=arrays)


def plain(found):
    """Without arrays, which compare by elements."""
    lists = {}
    for name, one in found.arrays.items():
        arrays = (one.ids, one.mask, one.logprobs)
        lists[name] = one.prompt_length, [repr(None if each is None else each.tolist()) for each in arrays]
    return exact_json.encode([found.row, found.trajectory, found.steps]), lists


@settings(max_examples=examples(100))
@given(trajectories())
def test_what_travelled_is_what_it_was(found):
    before = plain(found)
    back = unpack(exact_json.decode(exact_json.encode(pack(found)), PackedTrajectory))
    assert plain(back) == before == plain(found)


def test_a_step_that_begins_with_what_is_not_there_is_refused():
    begins = {"step": {"step_id": "s", "trajectory_id": "t"}}
    for wrong in (
        {"messages": [0, 1]}, {"messages": [1, 1]}, {"tools": 4}, {"arrays": {"prompt_length": 9, "ids": ""}},
        {"arrays": {"prompt_length": 0, "ids": "", "begins": [0, 1]}}, {"arrays": {"prompt_length": 0, "ids": "AA=="}},
    ):  # fmt: skip
        sent = {"row": {"position": 0, "trajectory_id": "t"}, "trajectory": {"trajectory_id": "t"}}
        packed = exact_json.decode(exact_json.encode({**sent, "steps": [{**begins, **wrong}]}), PackedTrajectory)
        with pytest.raises(InvalidRequestError, match="did not arrive whole"):
            unpack(packed)
    gone = PackedTrajectory(row=DatasetRow(position=2, trajectory_id="t", split="test"))
    assert unpack(gone) == SkippedRow(2, "t", "test", "missing")
