"""Whole trajectories become the same on every store as in the plain one in memory: whatever group, policy, signal."""

import random

import msgspec
import pytest

from agentworld.pool.memory import MemoryPool
from agentworld.records import CurationPolicy, Feedback, Message, NewTrajectory, Policy, Reward, WholeTrajectory

from .test_whole import turn

RULES = ('when reward < 0.5 then exclude "poor"', "when agent == 'b' then tag odd", 'when label.q == 2 then review "q"')


def some_whole(chance, number):
    """A trajectory of up to four steps, in a group or not, ended anyhow, with signals of any kind on anything."""
    name = f"t{number:02}"
    messages = [Message(role="user", content=f"task {number % 5}")]
    steps = []
    for place in range(chance.randrange(5)):
        changes = {}
        if chance.random() < 0.5:
            prompt = [chance.randrange(9) for _ in range(chance.randrange(140))]
            changes |= {"prompt_ids": prompt, "response_ids": [1, 2], "token_source": "submitted"}
        if chance.random() < 0.3:
            changes["rewards"] = {"reward": float(chance.randrange(3)), "own": 1.0}
        if chance.random() < 0.2:
            changes["labels"] = {"q": chance.randrange(3), "kept": True}
        if chance.random() < 0.2:
            changes["excluded_reason"] = "not wanted"
        if place and chance.random() < 0.3:
            changes["supersedes"] = f"{name}.{chance.randrange(place)}"
        if place > 1 and chance.random() < 0.3:
            changes |= {"parent_step_id": f"{name}.0", "fork_reason": "subagent"}
        changes["policy"] = chance.choice([None, Policy("m", "r", chance.randrange(3))])
        changes["channel"] = chance.choice(["train", "train", "side"])
        steps.append(turn(name, place, messages, **changes))
        messages = [*messages, steps[-1].response_message, Message(role="user", content=f"go on {place}")]
    targets = [{"trajectory_id": name}, *({"step_id": step.step_id} for step in steps)]
    rewards = [
        Reward(
            value=chance.choice([0.0, 0.25, 1.0]),
            name=chance.choice(["reward", "reward", "own"]),
            source=chance.choice(["api", "judge"]),
            **chance.choice(targets),
        )
        for _ in range(chance.randrange(4))
    ]
    feedback = [
        Feedback(
            kind="label",
            name="q",
            value=chance.choice([None, 1, 2]),
            feedback_id=f"{name}-{place}",
            **chance.choice(targets),
        )
        for place in range(chance.randrange(3))
    ]
    grouped = {}
    if chance.random() < 0.6:
        group = chance.choice("ghk")
        grouped = {
            "group_id": group,
            "group_size": 3,
            "rollout_index": chance.choice([None, 0, 1]),
            "group_failures": {"g": "zero", "h": "mask", "k": "drop"}[group],
        }
    return WholeTrajectory(
        new=NewTrajectory(trajectory_id=name, agent=chance.choice("ab"), priority=float(number % 3), **grouped),
        steps=steps,
        status=chance.choice(["finished", "finished", "failed", "truncated", "abandoned"]),
        rewards=rewards,
        feedback=feedback,
        origin={"digest": name},
        created_at=float(number),
        completed_at=0.0 if number % 2 else number + 60.0,
    )


def contents(pool):
    """Everything that readers see, but for the order of events of different trajectories."""
    trajectories = pool.list_trajectories(limit=1000).items
    told = {}
    for event in pool.events():
        key = event.trajectory_id or event.data.get("group_id")
        told.setdefault(key, []).append((event.kind, event.step_id, sorted(event.data.items(), key=str)))
    steps = pool.list_steps(limit=1000, include=("tokens", "messages")).items
    return {
        "trajectories": [msgspec.to_builtins(one) for one in trajectories],
        "steps": [msgspec.to_builtins(one) for one in steps],
        "groups": [msgspec.to_builtins(one) for one in pool.list_groups().items],
        "feedback": sorted(one.feedback_id for one in pool.list_feedback(limit=1000).items),
        "decisions": [pool.decisions(trajectory_id=one.trajectory_id) for one in trajectories],
        "awaited": len(pool.awaited().items),
        "events": {key: sorted(map(str, said)) for key, said in told.items()},
    }


@pytest.mark.parametrize("seed", [0, 1, 2, 11, 33])
def test_every_store_makes_the_same_of_them(pool, clock, seed):
    chance = random.Random(seed)
    other = MemoryPool(clock=clock)
    for store in (pool, other):
        if seed % 2:
            store.set_curation(CurationPolicy(rules=RULES))
        if seed > 1:
            store.add_rewards([Reward(value=0.75, trajectory_id="t03"), Reward(value=2.0, step_id="t04.0", name="own")])
            store.add_feedback([Feedback(kind="comment", comment="c", step_id="t05.1", feedback_id="early")])
    sent = [some_whole(chance, number) for number in range(24)]
    for begin in (0, 7, 8):
        part = sent[begin : {0: 7, 7: 8, 8: 24}[begin]]
        assert pool.add_whole(part) == other.add_whole(part)
        clock.now += 10
    mine, its = contents(pool), contents(other)
    for name in its:
        assert mine[name] == its[name], name
    assert pool.check() == []
