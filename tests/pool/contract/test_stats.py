"""The overview's counters beside a full count, whatever happened before."""

import random

import msgspec
import pytest

from agentworld.errors import AgentWorldError
from agentworld.pool.memory import MemoryPool
from agentworld.pool.sql.recount import recount, stored_counters
from agentworld.pool.stats import ChannelStats, PolicyStats
from agentworld.records import (
    Annotation,
    BatchSpec,
    Exchange,
    Feedback,
    Message,
    NewTrajectory,
    Policy,
    Reward,
    Step,
    Tool,
)
from tests.examples import seeds
from tests.pool.samples import finished, step

NAMES = [f"t{number}" for number in range(12)]
# Deliveries are compared apart: a store takes units in before it hands them out, or does not.
APART = {"consumers": {}, "last_event": 0}


class Caller:
    """Calls a store at random; the same calls for the same seed."""

    def __init__(self, pool, clock, seed):
        self.pool, self.clock, self.dice = pool, clock, random.Random(seed)
        self.number = 0
        self.held = []

    def __call__(self, count):
        calls = [getattr(self, name) for name in sorted(vars(type(self))) if name.startswith("do_")]
        for _ in range(count):
            self.clock.now += 1
            call = self.dice.choice(calls)
            name = self.dice.choice(NAMES)
            try:
                call(name)
            except AgentWorldError:
                pass  # Refused alike everywhere, and then nothing may have changed.

    def one(self, name, **changes):
        self.number += 1
        ids = [self.dice.randrange(50_000) for _ in range(self.dice.randrange(1, 300))]
        fields = {
            "step_id": f"{name}-{self.number}",
            "trajectory_id": name,
            "prompt_ids": ids,
            "response_ids": [1, 2, 3],
            "response_mask": self.dice.choice([None, [1, 0, 1]]),
            "response_logprobs": [-0.5, -0.25, -1.0],
            "prompt_messages": [Message(role="user", content=f"question {self.number % 5}")],
            "response_message": Message(role="assistant", content=f"answer {self.number}"),
            "tools": self.dice.choice([None, [Tool(name=f"tool{self.number % 3}")]]),
            "channel": self.dice.choice(["train", "val"]),
            "token_source": "submitted",
            "policy": Policy("m", "r", self.number // 20),
        }
        return Step(**fields | changes)

    def do_create(self, name):
        group = self.dice.choice([None, "g1", "g2", "g3"])
        size = None if group is None else 2
        channel = self.dice.choice(["train", "val"])
        self.pool.create_trajectory(NewTrajectory(trajectory_id=name, group_id=group, group_size=size, channel=channel))

    def do_append(self, name):
        first = self.one(name)
        sent = [first, self.one(name, supersedes=first.step_id), first, self.one(name, choice_index=2**62)]
        self.pool.append_steps(sent[: self.dice.randrange(1, 5)])

    def do_call(self, name):
        self.number += 1
        error = self.dice.choice([None, {"code": "engine_error", "message": "gone"}])
        choices = [] if error else [self.one(name)]
        self.pool.append_exchange(
            Exchange(
                exchange_id=f"x{self.number}",
                trajectory_id=name,
                dialect="chat",
                model="m",
                requested_model="m",
                messages=[Message(role="user", content="question")],
                choices=choices,
                error=error,
            )
        )

    def do_complete(self, name):
        status = self.dice.choice(["finished", "finished", "failed", "abandoned"])
        self.pool.complete_trajectory(name, status, self.dice.choice([None, 0.5, 1.0]))

    def do_reward(self, name):
        self.pool.add_rewards([Reward(value=self.dice.random(), trajectory_id=name, name=self.dice.choice("ab"))])

    def do_reward_step(self, name):
        self.pool.add_rewards([Reward(value=0.5, step_id=f"{name}-{self.dice.randrange(60)}")])

    def do_feedback(self, name):
        self.number += 1
        kinds = [
            Feedback(kind="rating", value=3, trajectory_id=name, feedback_id=f"f{self.number}"),
            Feedback(kind="label", name="good", value=True, trajectory_id=name, feedback_id=f"f{self.number}"),
            Feedback(kind="comment", comment="well", trajectory_id=name, feedback_id=f"f{self.number}"),
        ]
        self.pool.add_feedback([self.dice.choice(kinds)])

    def do_annotate(self, name):
        self.pool.add_annotations([Annotation(name=self.dice.choice("vw"), values=[1.0, 2.0], trajectory_id=name)])

    def do_policy(self, name):
        self.pool.set_policy(Policy("m", "r", self.number // 10))

    def do_lease(self, name):
        batch = self.pool.lease(
            BatchSpec(size=2, min_size=1, unit=self.dice.choice(["trajectory", "step"]), method="sft"), "c"
        )
        if batch is not None:
            self.held.append(batch)

    def do_end_lease(self, name):
        if self.held:
            batch = self.held.pop(self.dice.randrange(len(self.held)))
            self.dice.choice([self.pool.ack, self.pool.release])(batch.batch_id, batch.epoch)

    def do_wait(self, name):
        self.clock.now += self.dice.choice([1, 10_000])

    def do_delete(self, name):
        if self.dice.random() < 0.1:
            self.pool.delete_trajectories([name])

    def do_collect(self, name):
        if self.dice.random() < 0.3:
            self.pool.collect()


@pytest.mark.hypothesis
@pytest.mark.parametrize("seed", seeds(4))
def test_counters_are_a_full_count(pool, clock, seed):
    Caller(pool, clock, seed)(300)
    other_clock = type(clock)()
    other = MemoryPool(clock=other_clock)
    Caller(other, other_clock, seed)(300)
    told, counted = pool.stats(), other.stats()
    assert told.steps > 10
    ours, theirs = (msgspec.to_builtins(stats) | APART for stats in (told, counted))
    assert ours == theirs
    for name, consumer in counted.consumers.items():
        assert told.consumers[name] == consumer
    if not pool.url.startswith("memory"):
        with pool._database.reading() as reader:
            assert stored_counters(reader) == recount(reader)


def test_the_overview_tells_of_every_part(pool):
    finished(pool, "a", reward=1.0, steps=2)
    finished(pool, "b", channel="val", step_changes={"channel": "val"})
    finished(pool, "c", status="failed")
    pool.create_trajectory(NewTrajectory(trajectory_id="d", group_id="g"))
    pool.add_rewards([Reward(value=1.0, trajectory_id="nowhere")])
    pool.add_feedback([Feedback(kind="rating", value=5, trajectory_id="a")])
    pool.add_annotations([Annotation(name="v", values=[1.0], trajectory_id="a")])
    pool.append_steps([step("d", choice_index=2**62)])
    pool.delete_trajectories(["c"])
    stats = pool.stats()
    assert stats.trajectories == {"finished": 2, "open": 1}
    assert stats.readiness == {"complete": 1, "open": 1, "ready": 1}
    assert stats.channels == {"train": ChannelStats(2, 2), "val": ChannelStats(1, 1)}
    assert (stats.steps, stats.tokens_sampled, stats.rewards) == (3, 6, 2)
    assert (stats.feedback, stats.annotations, stats.awaited) == ({"rating": 1}, 1, 1)
    assert (stats.groups, stats.dead_letters, stats.tombstones) == ({"open": 1}, 1, 2)  # A trajectory and its step.


def test_where_a_consumers_units_stand(pool):
    for name in "abc":
        finished(pool, name, reward=1.0)
    spec = BatchSpec(unit="trajectory", size=1)
    first = pool.lease(spec, "x")
    pool.ack(first.batch_id, first.epoch)
    pool.lease(spec, "x")
    there = pool.stats().consumers["x"]
    assert (there.leased, there.acknowledged, there.dropped, there.poisoned) == (1, 1, 0, 0)
    if not pool.url.startswith("memory"):
        assert there.available == 1


def test_how_far_sampling_is_behind_the_policy(pool):
    assert pool.stats().policies == {}
    pool.set_policy(Policy("m", "r", 4))
    assert pool.stats().policies == {"m": PolicyStats("r", 4)}
    pool.append_steps([step("a", policy=Policy("m", "r", 1)), step("b", policy=Policy("m", "r", 3))])
    assert pool.stats().policies == {"m": PolicyStats("r", 4, sampled=3, lag=1)}
    pool.set_policy(Policy("m", "other", 0))
    assert pool.stats().policies == {"m": PolicyStats("other", 0)}
