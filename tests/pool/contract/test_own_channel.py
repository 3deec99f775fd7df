"""Writes of who may write to one channel alone: all or nothing, by what is there as they are written."""

import pytest

from agentworld.errors import ForbiddenError
from agentworld.records import Annotation, Feedback, NewTrajectory, Reward

from ..samples import step


@pytest.fixture
def two(pool):
    """A trajectory in each of two channels, in a group, with a step."""
    for name, channel in (("t", "train"), ("v", "val")):
        pool.create_trajectory(NewTrajectory(trajectory_id=name, channel=channel, group_id=f"g-{name}", group_size=2))
        pool.append_steps([step(name, step_id=f"s-{name}", channel=channel)])
    return pool


def test_a_step_that_no_channel_can_hold_is_rejected_alone(two):
    bad = step("v", step_id="bad", channel="val")
    bad.trajectory_id = "no\0id"
    done = two.append_steps([bad, step("v", step_id="good", channel="val")], own_channel="val")
    assert [one.outcome for one in done] == ["rejected", "stored"]


OTHERS = {
    "create": lambda pool, own: pool.create_trajectory(NewTrajectory(trajectory_id="t"), own_channel=own),
    "group": lambda pool, own: pool.create_trajectory(
        NewTrajectory(trajectory_id="new", channel="val", group_id="g-t"), own_channel=own
    ),
    "complete": lambda pool, own: pool.complete_trajectory("t", "failed", own_channel=own),
    "step": lambda pool, own: pool.append_steps(
        [step("v", step_id="a", channel="val"), step("t", step_id="b", channel="val")], own_channel=own
    ),
    "group of a step": lambda pool, own: pool.append_steps(
        [step("new", step_id="a", channel="val", group_id="g-t")], own_channel=own
    ),
    "reward": lambda pool, own: pool.add_signals(
        [Reward(trajectory_id="v", value=1.0), Reward(trajectory_id="t", value=1.0)], own_channel=own
    ),
    "reward of a step": lambda pool, own: pool.add_signals([Reward(step_id="s-t", value=1.0)], own_channel=own),
    "compared": lambda pool, own: pool.add_signals(
        [Feedback(kind="comparison", trajectory_id="v", other_id="t")], own_channel=own
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_names_anything_of_another_channel_is_not_written(two, name):
    before = two.stats()
    with pytest.raises(ForbiddenError, match="is for the channel 'val' alone"):
        OTHERS[name](two, "val")
    assert two.stats() == before
    assert two.check() == []


def test_what_is_all_of_the_channel_is_written(two):
    new = NewTrajectory(trajectory_id="w", channel="val", group_id="g-v", group_size=2)
    assert two.create_trajectory(new, own_channel="val").trajectory_id == "w"
    outcomes = two.append_steps([step(name, step_id=f"n-{name}", channel="val") for name in "vwx"], own_channel="val")
    assert [one.outcome for one in outcomes] == ["stored"] * 3
    signals = [Reward(trajectory_id="x", value=1.0), Reward(step_id="n-w", value=1.0, name="turn")]
    assert two.add_signals(signals, own_channel="val").changed == 2
    assert two.complete_trajectory("x", "finished", own_channel="val").readiness == "ready"


def test_nobody_can_say_whose_will_be_what_is_not_there(two):
    for signal in (Reward(trajectory_id="later", value=1.0), Reward(step_id="later", value=1.0)):
        with pytest.raises(ForbiddenError, match="not there yet"):
            two.add_signals([signal], own_channel="val")
    assert two.awaited().items == []


def test_so_it_is_of_signals_that_take_several_transactions(two):
    large = [[0.0] * 200_000] * 4
    sent = [Annotation(trajectory_id="v", name=f"a{number}", values=large) for number in range(3)]
    with pytest.raises(ForbiddenError):
        two.add_signals([*sent, Reward(trajectory_id="t", value=1.0)], own_channel="val")
    assert two.get_annotations(trajectory_id="v") == []
    assert two.add_signals(sent, own_channel="val").changed == 3
