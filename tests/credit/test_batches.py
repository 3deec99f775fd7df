import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agentworld as aw
from agentworld.credit import CreditSpec, apply_credit, loss_weights, step_tree
from agentworld.errors import ConfigError, InvalidRequestError
from agentworld.pool.shards import padding_of
from agentworld.records import Batch, BatchItem, BatchTrajectory, Message, Step, ToolCall, Trajectory
from tests.examples import examples


def step(step_id, prompt=(1,), reply=(2,), **more):
    return Step(step_id=step_id, trajectory_id="t", prompt_ids=list(prompt), response_ids=list(reply), **more)


def member(name, steps, reward=1.0, **more):
    known = {key: more.pop(key) for key in ("trained", "annotations", "loss_denominator") if key in more}
    return BatchTrajectory(trajectory=Trajectory(trajectory_id=name, reward=reward, **more), steps=steps, **known)


def batch(*groups, rewards=None):
    items = [BatchItem(key=str(key), trajectories=list(each), rewards=rewards or {}) for key, each in enumerate(groups)]
    return Batch(batch_id="b", consumer="c", epoch=1, deadline=0.0, unit="group", method="grpo", items=items)


def test_arrays_stand_in_the_order_of_the_batch():
    first = member("x", [step("a", reply=[1, 2, 3], response_mask=[1, 0, 1]), step("b", reply=[4])], 1.0)
    found = apply_credit(batch([first, member("y", [step("c", reply=[5, 6])], 0.0)]), CreditSpec(method="uniform"))
    assert (found.trajectory_ids, found.step_ids) == (["x", "y"], ["a", "b", "c"])
    assert found.trajectory.tolist() == [0, 0, 1]
    assert found.offsets.tolist() == [0, 3, 4, 6]
    assert found.mask.tolist() == [True, False, True, True, True, True]
    assert found.advantages.tolist() == [1.0, 0.0, 1.0, 1.0, 0.0, 0.0]
    assert found.weights.tolist() == pytest.approx([0.2, 0.0, 0.2, 0.2, 0.2, 0.2])
    assert [each.tolist() for each in found.of_trajectory(0)] == [[1.0, 0.0, 1.0], [1.0]]


def test_a_trajectory_weighs_the_same_however_it_forked():
    forked = [step("a", reply=[1, 2]), step("b", parent_step_id="a"), step("c", parent_step_id="a", reply=[3, 4, 5])]
    found = apply_credit(
        batch([member("x", forked, loss_denominator=6), member("y", [step("d")], 0.0, loss_denominator=1)]),
        aggregation="trajectory_mean",
    )
    of = [found.weights[np.repeat(found.trajectory, np.diff(found.offsets)) == index].sum() for index in (0, 1)]
    assert of == pytest.approx([0.5, 0.5])


def test_who_is_not_trained_counts_in_the_group_alone():
    bad = member("y", [step("b")], 0.0, trained=False)
    found = apply_credit(batch([member("x", [step("a")]), bad]), CreditSpec(parameters={"divide_by_std": False}))
    assert found.credits.tolist() == [0.5, -0.5]
    assert found.weights.tolist() == [1.0, 0.0]
    assert found.mask.tolist() == [True, False]


def test_padding_and_empty_batches():
    whole = batch([member("x", [step("a")]), member("y", [step("b")], 0.0)])
    padded = batch(whole.items[0].trajectories)
    padded.items.append(padding_of(whole.items[0]))
    assert apply_credit(padded).step_ids == ["a", "b"]
    assert apply_credit(padded).credits.tolist() == apply_credit(whole).credits.tolist()
    for method in ("group_relative", "gigpo", "discounted", "gae", "leave_one_out"):
        assert len(apply_credit(batch(), CreditSpec(method=method)).weights) == 0


@settings(max_examples=examples(20))
@given(st.lists(st.lists(st.integers(0, 4), max_size=3), min_size=1, max_size=4))
def test_weights_sum_to_one(lengths):
    """Whatever steps have, tokens that are trained on share one unit of weight."""
    members = [
        member(f"t{n}", [step(f"{n}.{k}", reply=[1] * size) for k, size in enumerate(sizes)], float(n))
        for n, sizes in enumerate(lengths)
    ]
    for aggregation in ("token_mean", "trajectory_mean"):
        found = apply_credit(batch(members), aggregation=aggregation)
        assert found.weights.sum() == pytest.approx(1.0 if any(map(sum, lengths)) else 0.0)


def test_a_rewritten_conversation_goes_on_from_the_step_before():
    steps = [
        step("a", agent="main"),
        step("b", agent="main", parent_step_id="a"),
        step("s", agent="search", fork_reason="subagent"),
        step("c", agent="main", fork_reason="compaction"),
        step("d", agent="main", parent_step_id="c"),
        step("p", agent="main", fork_reason="parallel", parent_step_id="c"),
    ]
    assert step_tree(steps).parents.tolist() == [-1, 0, -1, 1, 3, 3]
    assert step_tree(steps, "recorded").parents.tolist() == [-1, 0, -1, -1, 3, 3]
    assert step_tree(steps, "order").parents.tolist() == [-1, 0, 1, 2, 3, 4]
    # As where a step between was excluded.
    assert step_tree([step("a"), step("c", parent_step_id="gone")]).parents.tolist() == [-1, 0]


def test_steps_that_name_no_parent_continue_what_their_prompts_extend():
    steps = [
        step("a", [1], [2]),
        step("b", [1, 2, 3], [4]),
        step("c", [1, 2, 5], [6]),
        step("d", [1, 2, 3, 4, 7], [8]),
        step("e", [1, 2, 3, 4, 7], [8]),
        step("f", [1, 2, 3, 4, 7, 8], [9]),
        step("g", [9, 9, 9], [9]),
    ]
    assert step_tree(steps).parents.tolist() == [-1, 0, 0, 1, 1, 4, 5]
    assert step_tree(steps, "recorded").parents.tolist() == [-1] * 7


def test_rewards_of_steps_are_those_of_the_lease():
    steps = [step("a", rewards={"progress": 9.0}), step("b", parent_step_id="a")]
    at_lease = {"a": {"progress": 0.25}, "b": {"progress": 0.75}}
    spec = CreditSpec(method="progress", step_reward="progress")
    assert apply_credit(batch([member("x", steps)], rewards=at_lease), spec).credits.tolist() == [0.25, 0.75]
    with pytest.raises(InvalidRequestError, match="step b has no reward 'progress'") as error:
        apply_credit(batch([member("x", steps)]), spec)
    assert error.value.path == "step_reward"
    spec = CreditSpec(method="discounted", step_reward="progress", missing="zero")
    assert apply_credit(batch([member("x", steps)]), spec).credits.tolist() == [10.0, 1.0]
    alone = CreditSpec(method="discounted", reward="", step_reward="progress", missing="zero")
    assert apply_credit(batch([member("x", steps, None)]), alone).credits.tolist() == [9.0, 0.0]


def test_states_by_prompt_observation_metadata_and_function():
    def messages(call_id, seen):
        call = ToolCall(id=call_id, function={"name": "look", "arguments": '{"at": "door"}'})
        return [
            Message(role="user", content=f"Game {call_id}"),
            Message(role="assistant", tool_calls=(call,)),
            Message(role="tool", content=seen, tool_call_id=call_id),
        ]

    first = step("a", [1, 2], metadata={"room": {"x": 1, "y": 2}}, prompt_messages=messages("c1", "a door"))
    second = step("b", [1, 3], metadata={"room": {"y": 2, "x": 1}}, prompt_messages=messages("c2", "a door"))
    runs = batch([member("x", [first]), member("y", [second], 0.0)])

    def credits(**more):
        parameters = {"divide_by_std": False}
        return apply_credit(runs, CreditSpec(method="gigpo", parameters=parameters, **more)).credits.tolist()

    assert credits() == [0.5, -0.5]
    assert credits(state="observation") == [1.0, -1.0]
    assert credits(state="metadata.room") == [1.0, -1.0]
    spec = CreditSpec(method="gigpo", parameters={"divide_by_std": False})
    assert apply_credit(runs, spec, state=lambda step: "same").credits.tolist() == [1.0, -1.0]
    for state, says in (("metadata.house", "has no metadata.house"), ("nowhere", "no state"), ("metadata.", "a key")):
        with pytest.raises(InvalidRequestError, match=says) as error:
            credits(state=state)
        assert error.value.path == "state"


def test_roles_are_the_agents_of_steps():
    def run(name, reward):
        steps = [step(f"{name}1"), step(f"{name}2", agent="search", fork_reason="subagent", rewards={"found": reward})]
        return member(name, steps, reward, agent="main")

    runs = batch([run("x", 1.0), run("y", 0.0)])
    own = {"per_role": True, "role_reward": "own", "divide_by_std": False}
    spec = CreditSpec(parameters=own, step_reward="found", missing="zero")
    assert apply_credit(runs, spec).credits.tolist() == [0.0, 0.5, 0.0, -0.5]
    inherit = CreditSpec(parameters={"per_role": True, "divide_by_std": False})
    assert apply_credit(runs, inherit).credits.tolist() == [0.5, 0.5, -0.5, -0.5]


def values_of(runs, **more):
    return apply_credit(runs, CreditSpec(method="gae", **more))


def test_values_and_the_value_after_a_truncated_end():
    steps = [step("a", reply=[1, 2, 3], response_mask=[1, 0, 1]), step("b", reply=[4])]
    arrays = {"a": {"values": [0.1, 9.0, 0.3]}, "b": {"values": [0.4]}, "x": {"bootstrap": 2.0}}
    ended = batch([member("x", steps, 1.0, annotations=arrays)])
    plain = {"gamma": 1.0, "lam": 1.0}
    # With gamma and lam 1 the advantage is what is still to come, less the value.
    found = values_of(ended, parameters={**plain, "per": "token"})
    assert found.advantages.tolist() == pytest.approx([0.9, 0.0, 0.7, 0.6])
    assert found.credits.tolist() == pytest.approx([0.8, 0.6])
    assert values_of(ended, parameters=plain).credits.tolist() == pytest.approx([0.9, 0.6])
    cut_off = batch([member("x", steps, 1.0, annotations=arrays, status="truncated")])
    assert values_of(cut_off, parameters=plain).credits.tolist() == pytest.approx([2.9, 2.6])
    assert values_of(cut_off, parameters=plain, truncated="terminal").credits.tolist() == pytest.approx([0.9, 0.6])
    del arrays["x"]
    with pytest.raises(InvalidRequestError, match="was truncated and has no annotation 'bootstrap'"):
        values_of(cut_off)
    with pytest.raises(InvalidRequestError, match="step a has no annotation 'critic'"):
        values_of(ended, values="critic")
    arrays["a"]["values"] = [0.1]
    with pytest.raises(InvalidRequestError, match="no value for each sampled token") as error:
        values_of(ended, parameters={"per": "token"})
    assert error.value.path == "values"


def test_absent_is_not_zero():
    with pytest.raises(InvalidRequestError, match="trajectory x has no reward"):
        apply_credit(batch([member("x", [step("a")], None)]))
    with pytest.raises(InvalidRequestError, match="trajectory x has no reward 'correct'"):
        apply_credit(batch([member("x", [step("a")])]), CreditSpec(reward="correct"))
    for method in ("uniform", "discounted", "leave_one_out"):
        with pytest.raises(InvalidRequestError, match="has no reward"):
            apply_credit(batch([member("x", [step("a")], None)]), CreditSpec(method=method, reward=""))
    with pytest.raises(ConfigError, match="greedy") as error:
        apply_credit(batch([member("x", [step("a")])]), CreditSpec(method="remax"))
    assert error.value.path == "baseline_reward"


def test_another_reward_and_the_greedy_one():
    run = member("x", [step("a")], 1.0, rewards={"correct": 0.75, "greedy": 0.25})
    spec = CreditSpec(method="remax", reward="correct", baseline_reward="greedy")
    assert apply_credit(batch([run]), spec).credits.tolist() == [0.5]


def test_a_lease_with_everything_comes_from_the_pool():
    """Forks, rewards of steps and annotations as a pool serves them."""
    with aw.open_pool("memory://") as pool:
        for name, reward in (("x", 1.0), ("y", 0.0)):
            pool.create_trajectory(aw.NewTrajectory(trajectory_id=name, group_id="g", group_size=2))
            ids = {"trajectory_id": name, "group_id": "g", "response_logprobs": [-0.1]}
            pool.append_steps(
                [
                    Step(step_id=f"{name}1", prompt_ids=[1], response_ids=[2], **ids),
                    Step(step_id=f"{name}2", prompt_ids=[1, 2, 3], response_ids=[4], **ids),
                    Step(step_id=f"{name}3", prompt_ids=[1, 2, 5], response_ids=[6], **ids),
                ]
            )
            pool.add_rewards([aw.Reward(value=reward, trajectory_id=name)])
            for number in (1, 2, 3):
                pool.add_rewards([aw.Reward(value=0.25 * number, step_id=f"{name}{number}", name="progress")])
                pool.add_annotations([aw.Annotation(name="values", values=[0.5], step_id=f"{name}{number}")])
            pool.complete_trajectory(name, "finished")
        spec = aw.BatchSpec(method="grpo", rollouts=2, require=("tokens", "annotation.values"))
        leased = pool.consumer("c").lease(spec)
        assert leased is not None
        by_step = dict(zip(apply_credit(leased.batch).step_ids, range(6), strict=True))
        assert step_tree(leased.batch.items[0].trajectories[0].steps).parents.tolist() == [-1, 0, 0]
        progress = apply_credit(leased.batch, CreditSpec(method="progress", step_reward="progress")).credits
        assert [progress[by_step[f"y{n}"]] for n in (1, 2, 3)] == pytest.approx([0.25, -0.25, -0.25])
        gae = apply_credit(leased.batch, CreditSpec(method="gae")).credits
        assert [gae[by_step[f"x{n}"]] for n in (2, 3)] == pytest.approx([0.5, 0.5])
        assert gae[by_step["x1"]] == pytest.approx(0.95 * 0.5)
        leased.ack()


def test_weights_are_those_of_the_trainers_rows():
    """loss_weights on whole trajectories and on steps give each token the same."""
    counts, denominators = [3, 1, 2], [4, 4, 2]
    weights = loss_weights(counts, denominators, aggregation="trajectory_mean")
    assert weights.tolist() == pytest.approx([1 / 8, 1 / 8, 1 / 4])
