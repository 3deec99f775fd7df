"""Findings as labels of a pool: rules and `where` ask for them, and they decide what is served."""

import pytest

from agentworld.curation.checks import run_checks
from agentworld.pool import open_store
from agentworld.records import BatchSpec, BatchTrajectory, CurationPolicy, NewTrajectory, Reward
from tests.curation.checks.building import run, says, user


@pytest.fixture
def pool():
    store = open_store("memory://")
    yield store
    store.close()


def _stored(pool, name, *said):
    pool.create_trajectory(NewTrajectory(trajectory_id=name))
    pool.append_steps(run(*said, name=name).steps)
    pool.complete_trajectory(name, "finished")
    pool.add_rewards([Reward(trajectory_id=name, value=1.0)])


def _read(pool, name):
    steps = pool.list_steps(trajectory_id=name, include=("messages",)).items
    return BatchTrajectory(trajectory=pool.get_trajectory(name), steps=list(steps))


def test_labels_of_checks_decide_what_is_served(pool):
    _stored(pool, "good", user("x"), says("a"))
    _stored(pool, "loops", *[user("x"), says("same")] * 4)
    for name in ("good", "loops"):
        pool.add_signals([finding.feedback() for finding in run_checks(_read(pool, name))])
    found = pool.list_trajectories(where="label.check.loop >= 3").items
    assert [each.trajectory_id for each in found] == ["loops"]
    [comment] = [each.comment for each in pool.list_feedback(trajectory_id="loops").items if each.name == "check.loop"]
    assert '"cycle":1' in comment
    pool.set_curation(CurationPolicy(rules=("when label.check.loop >= 3 then exclude 'goes round in circles'",)))
    batch = pool.lease(BatchSpec(size=2, min_size=1, require=("messages",)), "trainer")
    assert [each.trajectory.trajectory_id for item in batch.items for each in item.trajectories] == ["good"]
    # What was decided by the label does not change the label.
    assert [each.value for each in run_checks(_read(pool, "loops")) if each.check == "loop"] == [4]
