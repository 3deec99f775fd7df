"""Leases under any order of calls, against a model of who may hold what."""

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

from agentworld.errors import StaleLeaseError
from agentworld.pool.memory import MemoryPool
from agentworld.pool.postgres import PostgresPool
from agentworld.pool.sqlite import SqlitePool
from agentworld.records import BatchSpec
from tests.examples import examples

from ..conftest import Clock
from ..samples import group

CONSUMERS = ["x", "y"]
LEASE_SECONDS = 10


class LeaseMachine(RuleBasedStateMachine):
    """Groups arrive, are leased, acknowledged, released, extended, time passes, consumers restart."""

    make = None

    @initialize()
    def open(self):
        self.clock = Clock()
        self.pool = type(self).make(self.clock)
        self.groups = 0
        # By consumer: unit -> the batch that holds it, None where available, "done" where acknowledged.
        self.units = {consumer: {} for consumer in CONSUMERS}
        self.leases = []  # dicts: batch, deadline, state
        self.epochs = dict.fromkeys(CONSUMERS, 0)
        self.trained = {consumer: set() for consumer in CONSUMERS}  # units that were acknowledged or in a checkpoint
        for _ in range(3):  # So that most calls have something to act on.
            self.add_group(True)

    def teardown(self):
        if hasattr(self, "pool"):
            self.pool.close()

    @rule(complete=st.booleans())
    def add_group(self, complete):
        name = f"g{self.groups:03}"
        self.groups += 1
        group(self.pool, name, [1.0, 0.0] if complete else [1.0, None])
        if complete:
            for units in self.units.values():
                units[name] = None

    @rule(consumer=st.sampled_from(CONSUMERS), count=st.integers(1, 3), minimum=st.integers(1, 3))
    def lease(self, consumer, count, minimum):
        spec = BatchSpec(
            method="grpo", groups=count, rollouts=2, min_size=min(count, minimum), lease_seconds=LEASE_SECONDS
        )
        self.expire(consumer)
        free = sorted(key for key, holder in self.units[consumer].items() if holder is None)[:count]
        batch = self.pool.lease(spec, consumer)
        if len(free) < min(count, minimum):
            assert batch is None
            return
        assert [item.key for item in batch.items] == free
        assert self.trained[consumer].isdisjoint(free)
        assert batch.epoch > self.epochs[consumer]
        self.epochs[consumer] = batch.epoch
        for key in free:
            self.units[consumer][key] = batch.batch_id
        self.leases.append({"batch": batch, "deadline": self.clock.now + LEASE_SECONDS, "state": "leased"})

    @rule(seconds=st.sampled_from([1, 4, 6, 10]))
    def wait(self, seconds):
        self.clock.now += seconds

    @precondition(lambda self: any(map(self.is_live, self.leases)))
    @rule(data=st.data(), dies=st.booleans())
    def overrun(self, data, dies):
        """A trainer needs longer than its lease, its consumer leases what is there again, and it may die after all."""
        slow = data.draw(st.sampled_from([lease for lease in self.leases if self.is_live(lease)]))
        consumer = slow["batch"].consumer
        self.clock.now = slow["deadline"]
        self.lease(consumer, 3, 1)
        if dies:
            self.resume(consumer, [slow])
            self.lease(consumer, 3, 1)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), wrong_epoch=st.booleans())
    def ack(self, data, wrong_epoch):
        lease = data.draw(st.sampled_from(self.leases))
        batch = lease["batch"]
        allowed = not wrong_epoch and (lease["state"] == "acked" or self.is_live(lease))
        self.expect(allowed, self.pool.ack, batch.batch_id, batch.epoch + wrong_epoch)
        if allowed and lease["state"] == "leased":
            self.end(lease, "acked")
            self.trained[batch.consumer].update(item.key for item in batch.items)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def release(self, data):
        lease = data.draw(st.sampled_from(self.leases))
        batch = lease["batch"]
        self.expect(lease["state"] != "acked", self.pool.release, batch.batch_id, batch.epoch)
        if lease["state"] == "leased":
            self.end(lease, "released")

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), seconds=st.sampled_from([2, 20]))
    def extend(self, data, seconds):
        lease = data.draw(st.sampled_from(self.leases))
        batch = lease["batch"]
        self.expect(self.is_live(lease), self.pool.extend, batch.batch_id, batch.epoch, seconds)
        if self.is_live(lease):
            lease["deadline"] = self.clock.now + seconds

    @rule(consumer=st.sampled_from(CONSUMERS), data=st.data())
    def restart(self, consumer, data):
        mine = [lease for lease in self.leases if lease["batch"].consumer == consumer]
        applied = data.draw(st.lists(st.sampled_from(mine), unique_by=id)) if mine else []
        self.resume(consumer, applied)

    def resume(self, consumer, applied):
        mine = [lease for lease in self.leases if lease["batch"].consumer == consumer]
        result = self.pool.resume(consumer, [lease["batch"].batch_id for lease in applied])
        assert result["acknowledged"] == [lease["batch"].batch_id for lease in applied]
        assert result["unknown"] == []
        released = [lease for lease in mine if lease["state"] == "leased" and lease not in applied]
        assert result["released"] == [lease["batch"].batch_id for lease in released]
        for lease in released:
            self.end(lease, "released")
        for lease in applied:
            if lease["state"] != "acked":
                self.end(lease, "acked")
            # What the checkpoint holds has trained, however often it was leased since: it must not come again.
            self.trained[consumer].update(item.key for item in lease["batch"].items)

    @invariant()
    def nothing_is_held_twice(self):
        held = [
            (lease["batch"].consumer, item.key)
            for lease in getattr(self, "leases", [])
            if lease["state"] == "leased"
            for item in lease["batch"].items
        ]
        assert len(held) == len(set(held))

    def is_live(self, lease):
        return lease["state"] == "leased" and lease["deadline"] > self.clock.now

    def expire(self, consumer):
        for lease in self.leases:
            # Leases of every consumer expire when anyone asks; only the asking one's units matter to the model.
            if lease["state"] == "leased" and lease["deadline"] <= self.clock.now:
                self.end(lease, "expired")

    def end(self, lease, state):
        batch = lease["batch"]
        units = self.units[batch.consumer]
        for item in batch.items:
            held = units[item.key] == batch.batch_id
            if state == "acked" and (held or units[item.key] is None):
                units[item.key] = "done"
            elif held:
                units[item.key] = None
        lease["state"] = state

    @staticmethod
    def expect(allowed, call, *arguments):
        if allowed:
            call(*arguments)
            return
        with pytest.raises(StaleLeaseError):
            call(*arguments)


@pytest.mark.parametrize(("store", "examples"), [("memory", examples(60)), ("sqlite", examples(12)), ("postgres", 4)])
def test_leases_follow_the_model(store, examples, tmp_path, request):
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

    machine = type("Machine", (LeaseMachine,), {"make": staticmethod(make)})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples, stateful_step_count=25, deadline=None, derandomize=True)
    )
