import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentworld.errors import InvalidRequestError, NotFoundError
from agentworld.pool.sql import arrays
from agentworld.records import Step
from agentworld.testing.workload import tool_trajectories
from tests.examples import examples
from tests.pool.samples import step


def same(found, sent):
    """Whether arrays are those of a step that was sent."""
    ids = [*(sent.prompt_ids if sent.prompt_ids is not None else ()), *sent.response_ids]
    assert (found.step_id, found.trajectory_id) == (sent.step_id, sent.trajectory_id)
    assert found.prompt_length == len(sent.prompt_ids if sent.prompt_ids is not None else ())
    assert found.ids.dtype == np.uint32
    assert found.ids.tolist() == ids
    mask = None if sent.response_mask is None or all(sent.response_mask) else list(sent.response_mask)
    assert (None if found.mask is None else found.mask.tolist()) == mask
    if sent.response_logprobs is None:
        assert found.logprobs is None
    else:
        assert found.logprobs.dtype == np.float32
        np.testing.assert_array_equal(found.logprobs, np.array(sent.response_logprobs, dtype=np.float32))


def test_sequences_are_what_was_sent(pool):
    sent = [one for steps in tool_trajectories(tasks=1, rollouts=2, turns=6, texts=False) for one in steps]
    pool.append_steps(sent)
    by_id = {one.step_id: one for one in sent}
    found = list(pool.sequences())
    assert [one.step_id for one in found] == list(by_id)
    for one in found:
        same(one, by_id[one.step_id])
    trajectory = sent[0].trajectory_id
    assert [one.step_id for one in pool.sequences(trajectory_id=trajectory)] == list(by_id)[:6]


def test_a_trajectorys_sequences_share_their_memory(pool):
    (sent,) = tool_trajectories(tasks=1, rollouts=1, turns=6, texts=False)
    pool.append_steps(sent)
    found = list(pool.sequences())
    if not pool.url.startswith("memory"):
        assert all(np.shares_memory(one.ids, found[-1].ids) for one in found)
    with pytest.raises(ValueError, match="read-only"):
        found[0].ids[0] = 1


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 300), st.integers(1, 200), st.sampled_from([70_000, 1 << 16, 9])),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 1_000_000),
)
def test_branches_of_any_shape_read_back(pool, shapes, seed):
    random = np.random.default_rng(seed)
    sent: list[Step] = []
    for parent, kept, more, vocabulary in shapes:
        before = [] if not sent else [*sent[parent % len(sent)].prompt_ids, *sent[parent % len(sent)].response_ids]
        prompt = [*before[:kept], *random.integers(0, vocabulary, more // 2).tolist()]
        reply = random.integers(0, vocabulary, more).tolist()
        mask = random.integers(0, 2, more).tolist()
        values = {
            "prompt_ids": prompt,
            "response_ids": reply,
            "response_mask": mask,
            "response_logprobs": [-0.5] * more,
        }
        sent.append(step(f"t{seed}", **values))
    results = pool.append_steps(sent)
    assert {result.outcome for result in results} == {"stored"}
    found = {one.step_id: one for one in pool.sequences(step_ids=[one.step_id for one in sent])}
    assert list(found) == [one.step_id for one in sent]
    for one in sent:
        same(found[one.step_id], one)


def test_only_what_is_asked_for(pool):
    pool.append_steps([step("a", step_id="a1"), step("b", step_id="b1", channel="val"), step("a", step_id="a2")])
    pool.append_steps([step("a", step_id="text", prompt_ids=None, response_ids=None, response_logprobs=None)])

    def found(**asked):
        return [one.step_id for one in pool.sequences(**asked)]

    assert found() == ["a1", "a2", "b1"]  # By trajectory; what has no ids is none.
    assert found(channel="val") == ["b1"]
    assert found(where="step_index == 1") == ["a2"]
    assert found(where="step_index == 0", trajectory_id="a") == ["a1"]
    assert found(step_ids=["b1", "a2", "b1"]) == ["a2", "b1"]
    assert found(step_ids=[]) == found(trajectory_id="none") == []
    with pytest.raises(NotFoundError, match="gone"):
        found(step_ids=["a1", "gone"])
    with pytest.raises(InvalidRequestError):
        pool.sequences(step_ids=["a1"], channel="val")


def test_more_steps_than_are_read_at_once(pool, monkeypatch):
    monkeypatch.setattr(arrays, "IDS_AT_ONCE", 1_000)
    monkeypatch.setattr(arrays, "STEPS_AT_ONCE", 2)
    sent = [one for steps in tool_trajectories(tasks=1, rollouts=3, turns=5, new_ids=100, texts=False) for one in steps]
    pool.append_steps(sent)
    by_id = {one.step_id: one for one in sent}
    for one in pool.sequences():
        same(one, by_id.pop(one.step_id))
    assert not by_id


def test_no_transaction_is_open_while_the_caller_works(pool):
    pool.append_steps([step("a"), step("b")])
    reading = pool.sequences()
    next(reading)
    if pool.url.startswith("sqlite"):
        assert not any(connection.in_transaction for connection in pool._database._idle)
        assert len(pool._database._idle) == 1
    # What goes away meanwhile is left out, whichever had been read.
    pool.delete_trajectories(["a", "b"])
    assert len(list(reading)) <= 1
    assert list(pool.sequences()) == []


def test_short_sequences_are_not_compared_with_all_others(sqlite_pool, monkeypatch):
    sent = [step("t", step_id=f"n{number}", prompt_ids=[1, 2], response_ids=[number]) for number in range(300)]
    sent += [step("t", step_id=f"e{number}", prompt_ids=[1, 2], response_ids=[number]) for number in range(0, 300, 3)]
    for one in sent:
        one.response_logprobs = [-0.5]
    sqlite_pool.append_steps(sent)
    compared = []
    equal = np.array_equal
    monkeypatch.setattr(arrays.np, "array_equal", lambda *two: compared.append(1) or equal(*two))
    found = list(sqlite_pool.sequences())
    monkeypatch.undo()
    by_id = {one.step_id: one for one in sent}
    for one in found:
        same(one, by_id[one.step_id])
    assert len(found) == len(sent)
    assert len(compared) <= len(sent)
    # What was there already is not held twice.
    bases = {one.step_id: one.ids for one in found}
    assert all(np.shares_memory(bases[f"e{number}"], bases[f"n{number}"]) for number in range(0, 300, 3))
