"""Every store under any order of calls, against a simple model: nothing lost, nothing twice, what is acknowledged stays
so, epochs grow, what was deleted is gone.
"""

import shutil

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from agentworld.errors import AgentWorldError, NotFoundError, StaleLeaseError
from agentworld.pool.keeping import Retention
from agentworld.pool.memory import MemoryPool
from agentworld.pool.postgres import PostgresPool
from agentworld.pool.sqlite import SqlitePool
from agentworld.records import BatchSpec, Reward
from tests.examples import examples

from ..conftest import Clock
from ..samples import ids, step

NAMES = [f"t{number}" for number in range(6)]
CONSUMERS = ["x", "y"]
LEASE_SECONDS = 10
RETENTION = Retention(max_age=25.0)


class Run:
    """What the model knows of one trajectory. `held`: by consumer, the batch that holds it, None, or done."""

    def __init__(self):
        self.steps = []
        self.late = []
        self.status = "open"
        self.reward = None
        self.ended = None
        self.held = dict.fromkeys(CONSUMERS)

    @property
    def is_served(self):
        return self.status == "finished" and self.reward is not None and bool(self.steps)


class PoolMachine(RuleBasedStateMachine):
    """Steps, rewards and ends come in any order, consumers lease and die, time passes, trajectories go."""

    make = None

    @initialize()
    def open(self):
        self.clock = Clock()
        self.pool = type(self).make(self.clock)
        self.runs = {}
        self.rewards = {}  # of trajectories that are not there yet
        self.deleted = set()
        self.leases = []
        self.epochs = dict.fromkeys(CONSUMERS, 0)
        self.acknowledged = {consumer: set() for consumer in CONSUMERS}
        self.count = 0

    def teardown(self):
        if hasattr(self, "pool"):
            try:
                assert self.pool.check() == []
            finally:
                self.pool.close()

    @rule(name=st.sampled_from(NAMES), again=st.booleans())
    def append(self, name, again):
        self.count += 1
        sent = step(name, step_id=f"{name}-{self.count}")
        for number in range(1 + again):
            [result] = self.pool.append_steps([sent])
            if name in self.deleted:
                assert result.outcome == "rejected"
                return
            late = name in self.runs and self.runs[name].status != "open"
            assert result.outcome == ("duplicate" if number else "late" if late else "stored")
        run = self.runs.setdefault(name, Run())
        (run.late if run.status != "open" else run.steps).append(sent.step_id)
        if name in self.rewards:
            run.reward = self.rewards.pop(name)

    @rule(name=st.sampled_from(NAMES), value=st.sampled_from([0.0, 1.0]))
    def reward(self, name, value):
        """Before, after or without its trajectory."""
        signal = Reward(value=value, trajectory_id=name)
        if name in self.deleted:
            with pytest.raises(AgentWorldError):
                self.pool.add_rewards([signal])
        else:
            self.pool.add_rewards([signal])
            if name in self.runs:
                self.runs[name].reward = value
            else:
                self.rewards[name] = value

    @precondition(lambda self: self.named(lambda run: run.status == "open"))
    @rule(data=st.data(), status=st.sampled_from(["finished", "finished", "failed"]))
    def complete(self, data, status):
        name = data.draw(st.sampled_from(self.named(lambda run: run.status == "open")))
        self.pool.complete_trajectory(name, status)
        self.runs[name].status, self.runs[name].ended = status, self.clock.now

    @rule(consumer=st.sampled_from(CONSUMERS), count=st.integers(1, 3))
    def lease(self, consumer, count):
        self.expire()
        free = self.named(lambda run: run.is_served and run.held[consumer] is None)
        spec = BatchSpec(method="reinforce", size=count, min_size=1, lease_seconds=LEASE_SECONDS, max_deliveries=1000)
        batch = self.pool.lease(spec, consumer)
        if not free:
            assert batch is None
            return
        names = [item.key for item in batch.items]
        assert len(names) == len(set(names)) == min(count, len(free))
        assert set(names) <= set(free)
        assert self.acknowledged[consumer].isdisjoint(names)
        assert batch.epoch > self.epochs[consumer]
        self.epochs[consumer] = batch.epoch
        for item in batch.items:
            run = self.runs[item.key]
            [entry] = item.trajectories
            assert [one.step_id for one in entry.steps] == run.steps
            assert item.rewards == {item.key: {"reward": run.reward}}
            run.held[consumer] = batch.batch_id
        self.leases.append({"batch": batch, "state": "leased", "deadline": self.clock.now + LEASE_SECONDS})

    @rule(seconds=st.sampled_from([1, 6, 10]))
    def wait(self, seconds):
        self.clock.now += seconds

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def ack(self, data):
        lease = data.draw(st.sampled_from(self.leases))
        batch = lease["batch"]
        if lease["state"] == "acked" or self.is_live(lease):
            self.pool.ack(batch.batch_id, batch.epoch)
            self.end(lease, "acked")
        else:
            with pytest.raises(StaleLeaseError):
                self.pool.ack(batch.batch_id, batch.epoch)

    @precondition(lambda self: any(lease["state"] != "acked" for lease in self.leases))
    @rule(data=st.data())
    def release(self, data):
        lease = data.draw(st.sampled_from([lease for lease in self.leases if lease["state"] != "acked"]))
        self.pool.release(lease["batch"].batch_id, lease["batch"].epoch)
        self.end(lease, "released")

    @rule(consumer=st.sampled_from(CONSUMERS), data=st.data())
    def resume(self, consumer, data):
        mine = [lease for lease in self.leases if lease["batch"].consumer == consumer]
        applied = data.draw(st.lists(st.sampled_from(mine), unique_by=id, max_size=2)) if mine else []
        self.pool.resume(consumer, [lease["batch"].batch_id for lease in applied])
        for lease in mine:
            if lease not in applied:
                self.end(lease, "released")
        for lease in applied:
            if lease["state"] != "acked":
                lease["state"] = "leased"
                self.end(lease, "acked", free_too=True)

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def delete(self, data):
        name = data.draw(st.sampled_from(sorted(self.runs)))
        self.pool.delete_trajectories([name])
        del self.runs[name]
        self.deleted.add(name)
        for taken in self.acknowledged.values():
            taken.discard(name)

    @rule()
    def collect(self):
        """What ended long ago goes, unless a lease holds it or a consumer is still to have it."""
        self.expire()
        before = set(self.runs)
        self.pool.collect(RETENTION)
        gone = before - set(ids(self.pool.list_trajectories(limit=1000)))
        for name in gone:
            run = self.runs.pop(name)
            assert run.status != "open"
            assert run.ended <= self.clock.now - RETENTION.max_age
            assert not any(self.holds(lease, name) and self.is_live(lease) for lease in self.leases)
            for taken in self.acknowledged.values():
                taken.discard(name)

    @invariant()
    def nothing_is_lost(self):
        if not hasattr(self, "pool"):
            return
        assert set(ids(self.pool.list_trajectories(limit=1000))) == set(self.runs)
        stored = {name: run.steps + run.late for name, run in self.runs.items()}
        assert sorted(ids(self.pool.list_steps(limit=1000))) == sorted(
            one for ids_of in stored.values() for one in ids_of
        )
        for name, run in self.runs.items():
            there = self.pool.get_trajectory(name)
            assert (there.status, there.reward, there.step_count) == (run.status, run.reward, len(stored[name]))
        for name in self.deleted:
            with pytest.raises(NotFoundError):
                self.pool.get_trajectory(name)

    def named(self, condition):
        return sorted(name for name, run in self.runs.items() if condition(run))

    def is_live(self, lease):
        return lease["state"] == "leased" and lease["deadline"] > self.clock.now

    @staticmethod
    def holds(lease, name):
        return any(item.key == name for item in lease["batch"].items)

    def expire(self):
        for lease in self.leases:
            if lease["state"] == "leased" and lease["deadline"] <= self.clock.now:
                self.end(lease, "expired")

    def end(self, lease, state, free_too=False):
        if lease["state"] != "leased":
            return
        batch = lease["batch"]
        for item in batch.items:
            run = self.runs.get(item.key)
            if run is None:
                continue
            held = run.held[batch.consumer]
            if state == "acked" and (held == batch.batch_id or (held is None and free_too)):
                run.held[batch.consumer] = "done"
                self.acknowledged[batch.consumer].add(item.key)
            elif held == batch.batch_id:
                run.held[batch.consumer] = None
        lease["state"] = state


@pytest.mark.parametrize(("store", "examples"), [("memory", examples(40)), ("sqlite", examples(8)), ("postgres", 4)])
def test_a_pool_follows_the_model(store, examples, tmp_path, request):
    opened = iter(range(10_000))

    def make(clock):
        if store == "memory":
            return MemoryPool(clock=clock)
        if store == "postgres":
            url, wipe = request.getfixturevalue("postgres_wipe")
            wipe()
            return PostgresPool(url, clock=clock)
        empty = request.getfixturevalue("empty_file")
        return SqlitePool(shutil.copy(empty, tmp_path / f"pool{next(opened)}.db"), clock=clock)

    machine = type("Machine", (PoolMachine,), {"make": staticmethod(make)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=30, deadline=None, derandomize=True, print_blob=False
        ),
    )
