"""Why a unit is, or is not, handed out: each reason, and that it agrees with what a lease does."""

import random
from pathlib import Path
from typing import get_args

import pytest

from agentworld.errors import InvalidRequestError, NotFoundError
from agentworld.pool.results import UnitReason
from agentworld.records import BatchSpec, Feedback, NewTrajectory, Policy, Reward
from tests.examples import seeds

from ..samples import finished, group, step

SINGLE = BatchSpec(method="reinforce", size=1)
PAIRS = BatchSpec(method="dpo", size=1)
GROUPS = BatchSpec(method="grpo", groups=1, rollouts=2)


def replaced(spec, **more):
    return BatchSpec(**{**{name: getattr(spec, name) for name in spec.__struct_fields__}, **more})


def reason(pool, target, spec, consumer="c"):
    found = pool.consumer(consumer).explain(target, spec)
    assert found.served == (found.reason == "fits")
    assert found.message
    return found.reason


def test_each_reason_of_a_single_unit(pool, clock):
    pool.set_policy(Policy("m", "r", 5))
    finished(pool, "fits", reward=1.0, step_changes={"policy": Policy("m", "r", 5)})
    finished(pool, "old", reward=1.0, step_changes={"policy": Policy("m", "r", 1)})
    finished(pool, "plain", reward=None)
    finished(pool, "text", reward=1.0, step_changes={"response_logprobs": None})
    finished(pool, "val", reward=1.0, channel="val")
    pool.append_steps([step("open", step_id="s-open")])
    pool.create_trajectory(NewTrajectory(trajectory_id="empty"))
    pool.complete_trajectory("empty", "finished", 1.0)
    assert reason(pool, "fits", SINGLE) == "fits"
    assert reason(pool, "plain", SINGLE) == "readiness"
    assert reason(pool, "plain", BatchSpec(method="sft")) == "fits"
    assert reason(pool, "open", SINGLE) == reason(pool, "s-open", SINGLE) == "readiness"
    assert reason(pool, "val", SINGLE) == "channel"
    assert reason(pool, "empty", SINGLE) == "no_steps"
    assert reason(pool, "fits", replaced(SINGLE, where="reward > 2")) == "where"
    for need, lacks in (("logprobs", "text"), ("annotation.ref", "fits"), ("label.ok", "fits")):
        found = pool.consumer("c").explain(lacks, replaced(SINGLE, require=(need,)))
        assert (found.reason, need in found.message) == ("lacks", True)
    assert reason(pool, "old", replaced(SINGLE, max_staleness=1)) == "stale"
    assert reason(pool, "old", replaced(SINGLE, max_staleness=1, stale="wait")) == "stale"
    assert reason(pool, "plain", replaced(BatchSpec(method="sft"), max_staleness=1)) == "stale"
    assert reason(pool, "fits", GROUPS) == "no_group"
    assert reason(pool, "fits", PAIRS) == "no_pair"
    assert reason(pool, "fits", replaced(SINGLE, unit="step")) == "fits"


def test_where_it_stands_with_the_consumer(pool, clock):
    finished(pool, "t", reward=1.0)
    spec = replaced(SINGLE, max_deliveries=2, lease_seconds=60)
    batch = pool.lease(spec, "c")
    found = pool.consumer("c").explain("t")  # As for its latest batch.
    assert (found.reason, found.batch_id, found.deadline, found.deliveries) == (
        "leased",
        batch.batch_id,
        clock.now + 60,
        1,
    )
    assert "c holds it" in found.message
    assert reason(pool, "t", spec, "other") == "fits"
    clock.now += 61
    assert reason(pool, "t", spec) == "fits"
    pool.release((second := pool.lease(spec, "c")).batch_id, second.epoch)
    assert "the next lease sets it aside" in pool.consumer("c").explain("t", spec).message
    assert reason(pool, "t", spec) == "poisoned"
    assert pool.lease(spec, "c") is None
    assert reason(pool, "t", spec) == "poisoned"
    pool.requeue("c", ["t"])
    third = pool.lease(spec, "c")
    pool.ack(third.batch_id, third.epoch)
    found = pool.consumer("c").explain("t", spec)
    assert (found.reason, found.batch_id) == ("acknowledged", third.batch_id)
    pool.set_policy(Policy("m", "r", 9))
    finished(pool, "stale", reward=1.0, step_changes={"policy": Policy("m", "r", 1)})
    fresh = replaced(spec, max_staleness=1)
    assert pool.lease(fresh, "c") is None
    assert reason(pool, "stale", fresh) == "dropped"


def test_groups_and_pairs(pool, clock):
    group(pool, "equal", [1.0, 1.0])
    group(pool, "good", [0.0, 1.0])
    for number in range(2):
        finished(pool, f"o{number}", reward=1.0, group_id="open", group_size=3, group_timeout=100.0)
    assert reason(pool, "good", GROUPS) == "fits"
    assert reason(pool, "open", GROUPS) == reason(pool, "o1", GROUPS) == "group_open"
    assert reason(pool, "good", replaced(GROUPS, rollouts=3)) == "too_few"
    assert reason(pool, "good", replaced(GROUPS, where="reward > 0")) == "too_few"
    pool.add_rewards([Reward(trajectory_id=one.trajectory_id, name="correct", value=1.0)
                      for one in pool.list_trajectories(group_id="equal").items])  # fmt: skip
    assert reason(pool, "equal", replaced(GROUPS, skip_equal="correct")) == "equal"
    assert reason(pool, "good", PAIRS) == "fits"
    assert reason(pool, "equal", PAIRS) == "no_pair"
    finished(pool, "a", reward=1.0)
    finished(pool, "b", reward=1.0)
    pool.add_feedback([Feedback(kind="comparison", trajectory_id="a", other_id="b")])
    assert reason(pool, "a", PAIRS) == "fits"
    assert reason(pool, "b", PAIRS) == "no_pair"


def test_what_cannot_be_explained(pool):
    finished(pool, "t", reward=1.0)
    with pytest.raises(NotFoundError, match="nothing"):
        pool.explain_unit("c", "nothing", SINGLE)
    with pytest.raises(InvalidRequestError, match="has had no batch"):
        pool.explain_unit("c", "t")
    with pytest.raises(InvalidRequestError):
        pool.explain_unit("c", "a b", SINGLE)


@pytest.mark.hypothesis
@pytest.mark.parametrize("seed", seeds(3))
def test_what_is_said_to_fit_is_what_a_lease_hands_out(pool, clock, seed):
    chance = random.Random(seed)
    pool.set_policy(Policy("m", "r", 2))
    for number in range(24):
        name = f"t{number}"
        new = NewTrajectory(
            trajectory_id=name,
            channel=chance.choice(["train", "train", "val"]),
            group_id=chance.choice([None, "g1", "g2", "g3"]),
            group_failures="mask",
        )
        if new.group_id is None:
            new.group_failures = None
        else:
            new.group_size = 6
        pool.create_trajectory(new)
        lacking = chance.choice([{}, {}, {"response_logprobs": None}])
        policy = chance.choice([Policy("m", "r", 2), Policy("m", "r", 0), None])
        pool.append_steps([step(name, step_id=f"s{number}", channel=new.channel, policy=policy, **lacking)])
        if chance.random() < 0.8:
            status = chance.choice(["finished", "finished", "failed"])
            pool.complete_trajectory(name, status, chance.choice([None, 0.0, 1.0]))
    targets = [one.trajectory_id for one in pool.list_trajectories().items]
    steps = [one.step_id for one in pool.list_steps().items]
    groups = [one.group_id for one in pool.list_groups().items]
    for number, (spec, asked) in enumerate([
        (replaced(SINGLE, size=100, min_size=1), targets),
        (replaced(SINGLE, size=100, min_size=1, where="reward > 0", require=("logprobs",)), targets),
        (replaced(SINGLE, size=100, min_size=1, max_staleness=1, stale="wait"), targets),
        (replaced(SINGLE, unit="step", size=100, min_size=1, require=("tokens", "logprobs")), steps),
        (replaced(GROUPS, groups=100, min_size=1, rollouts=1), groups),
        (replaced(GROUPS, groups=100, min_size=1, rollouts=2, require=("logprobs",)), groups),
        (replaced(PAIRS, size=100, min_size=1), groups),
    ]):  # fmt: skip
        explained = [pool.explain_unit(f"c{number}", one, spec) for one in asked]
        said = {each.key for each in explained if each.served}
        batch = pool.lease(spec, f"c{number}")
        assert said == ({item.key for item in batch.items} if batch is not None else set()), spec
        for key in said:
            one = key.removeprefix("group:")
            assert pool.explain_unit(f"c{number}", one, spec).reason == "leased"


def test_every_reason_is_documented():
    text = (Path(__file__).parents[3] / "docs/reference/cli.md").read_text()
    said = text.partition("## agentworld pool explain")[2].partition("\n## ")[0]
    assert [name for name in get_args(UnitReason) if f"| `{name}` |" not in said] == []
