import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentworld.credit import CreditSpec
from agentworld.errors import InvalidRequestError
from agentworld.pool.shards import padding_of
from agentworld.records import Sampling
from agentworld.trainers.rows import chain_rows, imitation_rows, policy_gradient_rows, recomputable_temperature
from tests.trainers.builders import batch, member, step


def rows_of(*steps, credits=None):
    credits = np.ones(len(steps)) if credits is None else np.asarray(credits, float)
    return chain_rows(member(list(steps)), credits, behaviour=True)


def test_steps_that_extend_one_another_are_one_row():
    rows = rows_of(
        step("a", [1, 2], [3, 4], logprobs=[-0.1, -0.2]),
        step("b", [1, 2, 3, 4, 9], [5], logprobs=[-0.3]),
        credits=[2.0, -1.0],
    )
    assert len(rows) == 1
    assert rows[0].ids.tolist() == [1, 2, 3, 4, 9, 5]
    assert rows[0].mask.tolist() == [False, False, True, True, False, True]
    assert rows[0].logprobs.tolist() == pytest.approx([0, 0, -0.1, -0.2, 0, -0.3])
    assert rows[0].advantages.tolist() == [0, 0, 2, 2, 0, -1]
    assert rows[0].step_ids == ["a", "b"]


def test_a_broken_prefix_begins_a_new_row_whose_prompt_is_not_trained():
    rows = rows_of(step("a", [1, 2], [3, 4]), step("b", [1, 2, 3, 7], [5]))
    assert [row.ids.tolist() for row in rows] == [[1, 2, 3, 4], [1, 2, 3, 7, 5]]
    assert [row.trained for row in rows] == [2, 1]
    assert [row.trajectory_tokens for row in rows] == [3, 3]


def test_interleaved_conversations_go_on_in_their_own_rows():
    rows = rows_of(step("a1", [1], [2]), step("b1", [8], [9]), step("a2", [1, 2, 3], [4]), step("b2", [8, 9, 7], [6]))
    assert [row.ids.tolist() for row in rows] == [[1, 2, 3, 4], [8, 9, 7, 6]]


def test_two_continuations_of_one_reply_train_it_once():
    rows = rows_of(step("a", [1], [2]), step("b", [1, 2, 3], [4]), step("c", [1, 2, 5], [6]))
    assert [row.ids.tolist() for row in rows] == [[1, 2, 3, 4], [1, 2, 5, 6]]
    assert [row.mask.tolist() for row in rows] == [[False, True, False, True], [False, False, False, True]]


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 3), max_size=3), st.lists(st.integers(0, 3), min_size=1, max_size=3)),
        min_size=1,
        max_size=6,
    )
)
def test_every_sampled_token_is_trained_once(turns):
    steps, history = [], [0]
    for number, (more, reply) in enumerate(turns):
        prompt = [*history, *more] if number % 3 != 2 else [1, *more]
        steps.append(step(str(number), prompt, reply))
        history = [*prompt, *reply]
    rows = rows_of(*steps)
    assert sum(row.trained for row in rows) == sum(len(reply) for _, reply in turns)
    for row in rows:
        assert len(row.ids) == len(row.mask) == len(row.logprobs) == len(row.advantages)


def test_injected_tokens_are_not_trained():
    rows = rows_of(step("a", [1], [2, 3], logprobs=[None, -0.5], response_mask=[0, 1]))
    assert rows[0].mask.tolist() == [False, False, True]


def test_advantages_come_from_the_group():
    runs = {"g": [member([step("a", [1], [2])], 1.0, "x"), member([step("b", [1], [3])], 0.0, "y")]}
    rows, rewards = policy_gradient_rows(batch(runs), CreditSpec(parameters={"divide_by_std": False}))
    assert rewards.tolist() == [1.0, 0.0]
    assert [row.advantages[-1] for row in rows] == [0.5, -0.5]


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (step("a", [1], []), "no token ids"),
        (step("a", [1], [2], logprobs=[None]), "lacks the log-probability of a sampled token"),
        (step("a", [1], [2], space=None), "in which space"),
        (step("a", [1], [2], sampling=Sampling(temperature=0.7, top_p=0.9)), "after top_p"),
        (step("a", [1], [2], sampling=Sampling(temperature=0.0)), "after temperature 0"),
    ],
)
def test_what_cannot_be_trained_on_is_refused_and_named(bad, says):
    with pytest.raises(InvalidRequestError, match=says) as error:
        policy_gradient_rows(batch({"g": [member([bad])]}))
    assert "step a" in error.value.message


def test_an_absent_reward_is_not_zero():
    with pytest.raises(InvalidRequestError, match="has no reward"):
        policy_gradient_rows(batch({"g": [member([step("a", [1], [2])], reward=None)]}))


def test_imitation_takes_any_space():
    rows = imitation_rows(batch({"g": [member([step("a", [1], [2], space=None)])]}))
    assert rows[0].mask.tolist() == [False, True]


def test_the_space_decides_the_temperature():
    assert recomputable_temperature(step("a", [1], [2], space="raw", sampling=Sampling(top_p=0.5))) == 1.0
    assert recomputable_temperature(step("a", [1], [2], sampling=Sampling(temperature=0.7))) == 0.7
    sampling = Sampling(temperature=0.7, top_p=0.9)
    assert recomputable_temperature(step("a", [1], [2], space="temperature", sampling=sampling)) == 0.7


def test_all_rows_of_a_trajectory_carry_its_loss_denominator():
    entry = member([step("a", [1, 2], [3, 4]), step("b", [1, 2, 3, 7], [5])])
    entry.loss_denominator = 7
    assert [row.trajectory_tokens for row in chain_rows(entry, np.ones(2), behaviour=True)] == [7, 7]


def test_who_is_not_trained_counts_in_the_group_alone():
    good, bad = member([step("a", [1], [2])], 1.0), member([step("b", [1], [3], trajectory="t1")], 0.0, "t1")
    bad.trained = False
    rows, rewards = policy_gradient_rows(batch({"g": [good, bad]}))
    assert [row.step_ids for row in rows] == [["a"]]
    assert rewards.tolist() == [1.0, 0.0]
    assert rows[0].advantages.tolist() == pytest.approx([0.0, 1.0], abs=1e-4)
    assert [row.step_ids for row in imitation_rows(batch({"g": [good, bad]}))] == [["a"]]


def test_credit_may_tell_steps_and_tokens_apart():
    steps = [step("a", [1], [2, 3], response_mask=[0, 1]), step("b", [1, 2, 3], [4])]
    runs = batch({"g": [member(steps, 1.0)]})
    rows, _ = policy_gradient_rows(runs, CreditSpec(method="discounted", parameters={"gamma": 0.5}))
    assert [row.advantages.tolist() for row in rows] == [[0.0, 0.0, 0.5, 1.0]]
    rows, _ = policy_gradient_rows(runs, CreditSpec(method="discounted", parameters={"gamma": 0.25, "per": "token"}))
    assert [row.advantages.tolist() for row in rows] == [[0.0, 0.0, 0.25, 1.0]]


def test_padding_is_neither_trained_on_nor_counted():
    whole = batch({"g": [member([step("a", [1], [2])], 1.0), member([step("b", [1], [3])], 0.0)]})
    padded = batch({"g": whole.items[0].trajectories})
    padded.items.append(padding_of(whole.items[0]))
    for rows_from in (imitation_rows, lambda one: policy_gradient_rows(one)[0]):
        assert [row.step_ids for row in rows_from(padded)] == [row.step_ids for row in rows_from(whole)]
    assert policy_gradient_rows(padded)[1].tolist() == [1.0, 0.0]


def test_images_are_refused_as_ids_do_not_show_them():
    seen = step("a", [1, 2], [3], metadata={"prompt": "media"})
    with pytest.raises(InvalidRequestError, match="step a has images"):
        rows_of(seen)
