"""Over any tree of steps: each reply, and each sampled token, is trained on exactly once, after what it was asked."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agentworld.curation.exports.conversations import conversations
from agentworld.curation.exports.sequences import each_sequence, sampled, sequences
from agentworld.pool.arrays import steps_as_arrays
from agentworld.records import Message, Step


@st.composite
def trees(draw):
    """Steps that go on from any earlier one, or from its prompt, sometimes with what they were asked changed."""
    steps = []
    for number in range(draw(st.integers(1, 8))):
        parent = draw(st.sampled_from(steps)) if steps else None
        kind = draw(st.sampled_from(["on", "again", "rewritten", "new"])) if parent else "new"
        question, ids = [Message(role="user", content=str(number))], [100 + number]
        if kind == "on":
            prompt = [*parent.prompt_messages, parent.response_message, *question]
            prompt_ids = [*parent.prompt_ids, *parent.response_ids, *ids]
        elif kind == "again":
            prompt, prompt_ids = list(parent.prompt_messages), list(parent.prompt_ids)
        elif kind == "rewritten":
            prompt = [*question, *parent.prompt_messages[1:], parent.response_message]
            prompt_ids = [*ids, *parent.prompt_ids[1:], *parent.response_ids]
        else:
            prompt, prompt_ids = question, ids
        length = draw(st.integers(1, 3))
        steps.append(
            Step(
                step_id=f"s{number}",
                trajectory_id="t",
                prompt_messages=prompt,
                response_message=Message(role="assistant", content=draw(st.sampled_from("ab"))),
                prompt_ids=prompt_ids,
                response_ids=[draw(st.integers(0, 2)) for _ in range(length)],
                response_mask=draw(st.lists(st.integers(0, 1), min_size=length, max_size=length)),
            )
        )
    return steps


@given(trees())
def test_each_reply_stands_once_after_the_prompt_that_it_answers(steps):
    found = conversations(steps)
    assert sorted(step.step_id for each in found for step in each.steps) == sorted(step.step_id for step in steps)
    for each in found:
        assert len(each.replies) == len(each.steps)
        for place, step in zip(each.replies, each.steps, strict=True):
            assert each.messages[:place] == step.prompt_messages
            assert each.messages[place] == step.response_message
        assert len(each.messages) == each.replies[-1] + 1


@given(trees())
def test_each_sampled_token_is_trained_on_once_after_the_ids_that_the_model_saw(steps):
    arrays = {one.step_id: one for one in steps_as_arrays(steps)}
    rows = sequences(steps, arrays, sampled)
    trained = {}
    for row in rows:
        for step in row.steps:
            assert step.step_id not in trained
            begin = len(step.prompt_ids)
            assert row.ids[: begin + len(step.response_ids)].tolist() == step.prompt_ids + step.response_ids
            trained[step.step_id] = row.mask[begin : begin + len(step.response_ids)].tolist()
        assert row.mask.sum() == sum(sum(step.response_mask) for step in row.steps)
    assert trained == {step.step_id: [bool(bit) for bit in step.response_mask] for step in steps}
    apart = list(each_sequence(steps, arrays, sampled))
    assert [len(row.steps) for row in apart] == [1] * len(steps)
    assert np.concatenate([row.ids[row.mask] for row in apart]).size == sum(sum(each.response_mask) for each in steps)
