"""Arguments of a wrong type, misspelt names: the error says what to write."""

import pytest

from agentworld import BatchSpec, NewTrajectory, Policy, Reward, Step
from agentworld.errors import InvalidRequestError
from agentworld.factory import EmbeddedPool


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda pool: pool.append_steps(Step(step_id="s", trajectory_id="t")), "a list of Step, not Step"),
        (lambda pool: pool.append_steps("s"), "a list of Step, not str"),
        (lambda pool: pool.add_rewards(Reward(trajectory_id="t", value=1.0)), "not Reward (at signals). Put a single"),
        (lambda pool: pool.add_rewards(None), "a list of Reward, Feedback or Annotation, not NoneType"),
        (lambda pool: pool.set_policy("m"), "this must be a Policy, not str (at policy)"),
        (lambda pool: pool.follow(kinds=["trajectory.complete"]), "no event is of kind 'trajectory.complete'"),
        (lambda pool: pool.follow(kinds="step.appended"), "a list of kinds of events, not str (at kinds)"),
        (lambda pool: pool.complete_trajectory("t", "done"), "Known: finished, failed, truncated, abandoned"),
        (lambda pool: pool.lease(BatchSpec(order="lifo"), "c"), "Known: fifo, freshest, priority, random"),
        (lambda pool: pool.create_trajectory(NewTrajectory(group_failures="keep")), "Known: drop, mask, zero"),
        (lambda pool: EmbeddedPool(pool).trajectory(groupsize=4), "field 'groupsize' (at groupsize). Did you mean"),
        (lambda pool: EmbeddedPool(pool).trajectory(group="a", group_id="b"), "group and group_id differ"),
    ],
)
def test_a_wrong_argument_is_an_error_that_says_what_to_write(pool, call, said):
    pool.create_trajectory(NewTrajectory(trajectory_id="t"))
    with pytest.raises(InvalidRequestError) as caught:
        call(pool)
    assert said in str(caught.value)


LISTINGS = ("list_batches", "list_trajectories", "list_steps", "list_groups", "list_feedback", "awaited")


@pytest.mark.parametrize("wrong", ["5", 2.5, None, True, [], b"5"])
def test_a_page_of_a_wrong_size_or_place_is_an_error_that_says_so(pool, wrong):
    for name in LISTINGS:
        with pytest.raises(InvalidRequestError, match="whole number from 1 to 1000") as caught:
            getattr(pool, name)(limit=wrong)
        assert caught.value.path == "limit"
    for name in ("events", "dead_letters", "tombstones"):
        for argument in ("after", "limit"):
            with pytest.raises(InvalidRequestError, match="whole number") as caught:
                getattr(pool, name)(**{argument: wrong})
            assert caught.value.path == argument


@pytest.mark.parametrize("wrong", ["5", 5, True, [], b"o5"])
def test_a_cursor_or_condition_of_a_wrong_type_is_an_error_that_says_so(pool, wrong):
    for name in LISTINGS:
        with pytest.raises(InvalidRequestError, match="no cursor of this listing"):
            getattr(pool, name)(cursor=wrong)
    if not isinstance(wrong, str):
        for name in ("list_trajectories", "list_steps"):
            with pytest.raises(InvalidRequestError, match="where must be a text, not a"):
                getattr(pool, name)(where=wrong)
        with pytest.raises(InvalidRequestError, match="cannot be an id"):
            pool.revoke_key(wrong)


def test_any_iterable_of_records_is_taken(pool):
    sent = (Step(step_id=name, trajectory_id="t", prompt_ids=[1], response_ids=[2]) for name in ("a", "b"))
    assert [result.outcome for result in pool.append_steps(sent)] == ["stored", "stored"]
    assert pool.add_rewards({"a": Reward(trajectory_id="t", value=1.0)}.values()) == 1
    assert pool.set_policy(Policy("m", version=1)).version == 1


def test_a_trajectory_without_a_gateway_says_how_to_have_one(pool):
    session = EmbeddedPool(pool).trajectory(group="g", group_id="g")
    assert pool.get_trajectory(session.trajectory_id).group_id == "g"
    with pytest.raises(InvalidRequestError, match="agentworld serve"):
        session.chat([{"role": "user", "content": "hi"}])
    with pytest.raises(InvalidRequestError, match="Did you mean prompt_ids"):
        session.step(prompt_idz=[1])
