"""Events about one trajectory or of one channel: those, what is told to all, and nothing else."""

import pytest

from agentworld.errors import InvalidRequestError
from agentworld.pool.keeping import Retention
from agentworld.records import BatchSpec, Feedback, NewTrajectory, Policy, Reward

from ..samples import step

ALL = {"policy.set", "gateway.paused", "gateway.resumed"}


def told(events):
    return [(event.kind, event.trajectory_id or event.data.get("group_id")) for event in events]


def filled(pool, clock):
    """Two channels, one of which is called as what everybody is told is marked; a group that time closes."""
    for name, channel in (("a", "train"), ("b", "*"), ("c", "train")):
        new = NewTrajectory(trajectory_id=name, channel=channel, group_id=f"g-{name}", group_timeout=10.0)
        pool.create_trajectory(new)
    for name in "abc":
        pool.append_steps([step(name, step_id=f"s-{name}", channel="*" if name == "b" else "train")])
        pool.add_rewards([Reward(value=1.0, trajectory_id=name), Reward(value=1.0, step_id=f"s-{name}", name="x")])
        pool.add_feedback([Feedback(kind="label", name="ok", value=True, trajectory_id=name)])
    pool.set_policy(Policy("m", "r", 1))
    pool.set_paused(True)
    pool.set_paused(False)
    pool.complete_trajectory("a", "finished", 1.0)
    pool.complete_trajectory("b", "failed")
    clock.now += 20
    assert pool.close_due_groups() == 3
    pool.lease(BatchSpec(method="reinforce", size=1), "c")
    pool.append_steps([step("implied", step_id="s-implied", channel="train")])
    pool.create_trajectory(NewTrajectory(trajectory_id="implied", channel="*"))
    pool.delete_trajectories(["c"])
    pool.collect(Retention(max_age=1e6))


def test_events_of_a_channel_and_of_a_trajectory(pool, clock):
    filled(pool, clock)
    everything = pool.events()
    whose = {"a": "train", "c": "train", "b": "*", "implied": "*", "g-a": "train", "g-c": "train", "g-b": "*"}
    for channel in ("train", "*", "none"):
        expected = [e for e in everything if e.kind in ALL or whose.get(told([e])[0][1]) == channel]
        assert pool.events(channel=channel) == expected
    assert ("trajectory.deleted", "c") in told(pool.events(channel="train"))
    assert ("group.closed", "g-b") in told(pool.events(channel="*"))
    for name in ("a", "b", "c", "implied"):
        expected = [e for e in everything if e.kind in ALL or e.trajectory_id == name]
        assert pool.events(trajectory_id=name) == pool.events(trajectory_id=name, channel=whose[name]) == expected
    assert {e.kind for e in pool.events(trajectory_id="a", channel="*")} == ALL


def test_they_are_read_page_by_page(pool, clock):
    filled(pool, clock)
    for filters in ({"channel": "train"}, {"channel": "*"}, {"trajectory_id": "a"}):
        whole = pool.events(**filters)
        found, after = [], 0
        while page := pool.events(after, 2, **filters):
            assert len(page) <= 2
            found, after = found + page, page[-1].sequence
        assert found == whole


def test_what_names_neither_is_refused(pool):
    for wrong in ({"trajectory_id": "a b"}, {"trajectory_id": 3}, {"channel": 3}, {"channel": "a\0"}):
        with pytest.raises(InvalidRequestError):
            pool.events(**wrong)
