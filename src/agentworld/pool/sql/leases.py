"""Leasing on SQL engines; states and rules are those of agentworld.pool.lease_rules.

A lease takes its units inside a write transaction that looks at what is known to be due and a little beyond, bounded in
rows and time. Where that is not enough, it looks through the whole backlog with read transactions, and takes what it
found; so that nothing starves, and waiting consumers cost no writer anything. Then it reads the units.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from agentworld.errors import NotFoundError
from agentworld.pool import rules
from agentworld.pool.lease_rules import (
    check_ack,
    check_extend,
    check_names,
    check_release,
    check_spec,
    empty_resumption,
)
from agentworld.pool.sql import backlog, batch_rows, curating, events, groups, items, pulling, resuming, standing, units
from agentworld.pool.sql.backlog import READY
from agentworld.pool.sql.batch_rows import end_batch, lease_state
from agentworld.pool.sql.connections import Database, Reader, Row
from agentworld.pool.sql.items import TakenUnit, ask_items, read_items, rewards_of
from agentworld.pool.sql.knowledge import Knowledge
from agentworld.pool.sql.policies import ask_policies, current_policies
from agentworld.pool.sql.pulling import FEEDBACK, PULL_ROWS, is_behind, lag, pull, reshuffle
from agentworld.pool.sql.transaction import Transaction
from agentworld.pool.sql.units import Plan, plan
from agentworld.pool.sql.walk import Walk, ask_first, ask_leaving
from agentworld.pool.sql.writer import Writer
from agentworld.pool.unit_rules import Policies
from agentworld.records import Batch, BatchSpec, check_id, new_id

TAKE_ROWS = 1_024  # of a backlog that a lease looks at while it holds the pool's lock
TAKE_MARKED = 4_096
TAKE_SECONDS = 0.01
LOOK_ROWS = 100_000  # that it looks at in one go without the lock
LOOK_SECONDS = 2.0
_EXPIRED_AT_ONCE = 64
_MOST_HINTS = 1_024
_MOST_LOOKS = 200  # of one lease that come to nothing, while others change what it looks at


@dataclass(slots=True)
class Attempt:
    """What one attempt to take units begins with, and hands on to the next. `is_whole`: all there is was looked at.
    `is_ready`: enough was found. `leaves`: units were found that are to leave the backlog. `has_moved`: the latest
    attempt has changed what the next one finds.
    """

    is_whole: bool = False
    is_ready: bool = False
    leaves: bool = False
    has_moved: bool = False
    pulls: bool = False
    shuffled: int | None = None
    swept: bool = False


class _Taken(NamedTuple):
    batch: Batch
    units: list[TakenUnit]


# What else an attempt comes to: nothing is there; something is done, try again; look outside of the lock.
_Without = Literal["nothing", "again", "look"]


class Leases:
    """The leases of one pool."""

    def __init__(self, database: Database, writer: Writer, clock: Callable[[], float]) -> None:
        self._database = database
        self._writer = writer
        self._clock = clock
        self._hints: OrderedDict[tuple[str, BatchSpec], Knowledge] = OrderedDict()
        self._guard = threading.Lock()

    def lease(self, spec: BatchSpec, consumer: str) -> Batch | None:
        """See Pool."""
        spec, needs = check_spec(spec, consumer)
        wanted = plan(spec, consumer, needs)
        knowledge = self._knowledge(wanted)
        self._begin(wanted, knowledge)
        turn = Attempt()
        if knowledge.is_idle and not self._look(wanted, knowledge, turn):
            return None
        looks = 0
        while True:
            taking = self._writer.submit(lambda txn: self._take(txn, wanted, knowledge, turn), patient=True)
            outcome = taking.result()
            if isinstance(outcome, _Taken):
                knowledge.is_idle = False
                return self._read(wanted, outcome)
            looks = 0 if turn.has_moved else looks + (outcome == "look")
            if outcome == "nothing" or looks > _MOST_LOOKS:
                break
            if outcome == "look" and not self._look(wanted, knowledge, turn):
                break
        knowledge.is_idle = True
        return None

    def ack(self, batch_id: str, epoch: int) -> None:
        """See Pool."""

        def operation(txn: Transaction) -> None:
            txn.connection.trust()
            batch_rows.foresee_end(txn, batch_id)
            row = _find(txn, batch_id)
            if check_ack(batch_id, row["epoch"], epoch, lease_state(row, txn.now)):
                end_batch(txn, row, "acked")

        self._writer.submit(operation, patient=True).result()

    def release(self, batch_id: str, epoch: int) -> None:
        """See Pool."""

        def operation(txn: Transaction) -> None:
            batch_rows.foresee_end(txn, batch_id)
            row = _find(txn, batch_id)
            if check_release(batch_id, row["epoch"], epoch, row["state"]):
                end_batch(txn, row, "released")

        self._writer.submit(operation, patient=True).result()

    def extend(self, batch_id: str, epoch: int, seconds: float) -> float:
        """See Pool."""

        def operation(txn: Transaction) -> float:
            row = _find(txn, batch_id)
            check_extend(batch_id, row["epoch"], epoch, lease_state(row, txn.now), seconds)
            batch_rows.set_deadline(txn, row["pk"], txn.now + seconds)
            return txn.now + seconds

        return self._writer.submit(operation).result()

    def resume(self, consumer: str, applied: Sequence[str]) -> dict[str, list[str]]:
        """See Pool."""
        check_id(consumer, "consumer")
        named = check_names(applied, "applied")
        result = empty_resumption()
        # Released first: what an applied batch lost to a later one of this consumer is then free to acknowledge. Each
        # transaction is short, and what is not done when it breaks off, the same call does.
        spared = set(named)
        self._writer.submit(lambda txn: batch_rows.next_epoch(txn, consumer)).result()
        while released := self._writer.submit(lambda txn: resuming.release_held(txn, consumer, spared)).result():
            result["released"] += released
        left = named
        while left:
            settled, unknown = self._writer.submit(
                partial(resuming.acknowledge, consumer=consumer, named=left, spared=spared)
            ).result()
            result["acknowledged"] += settled
            result["unknown"] += unknown
            left = left[len(settled) + len(unknown) :]
        return result

    def _knowledge(self, wanted: Plan) -> Knowledge:
        key = (wanted.scope.consumer, wanted.spec)
        with self._guard:
            known = self._hints.pop(key, None)
            found = self._hints[key] = known or Knowledge(wanted)
            while len(self._hints) > _MOST_HINTS:
                self._hints.popitem(last=False)
        if known is None:
            self._compile(wanted)
        return found

    def _compile(self, wanted: Plan) -> None:
        """Compile the statements of a lease now, not under the pool's lock."""
        expected = [
            *batch_rows.STATEMENTS,
            groups.ask_due(0.0)[0],
            *backlog.statements(wanted.spec.order),
            *pulling.statements(wanted),
            *units.statements(wanted),
            *items.statements(wanted),
            events.EVENT,
        ]
        for statement in expected:
            statement.text(self._database.engine)

    def _begin(self, wanted: Plan, knowledge: Knowledge) -> None:
        """Forget what does not hold any more."""
        is_pair = wanted.scope.unit == "pair"
        if not (knowledge.can_age or wanted.spec.max_staleness is not None or is_pair):
            return
        with self._database.reading() as reader:
            current = current_policies(reader)
            sequences = [backlog.latest(reader, name) for name in (READY, FEEDBACK)] if is_pair else []
        knowledge.begin(current, tuple(sequences))

    def _look(self, wanted: Plan, knowledge: Knowledge, turn: Attempt) -> bool:
        """Whether a lease has something to do, as a reader sees it."""
        turn.is_whole = turn.is_ready = turn.pulls = turn.leaves = False
        with knowledge.looking:
            while True:
                now = self._clock()
                with self._database.reading() as reader:
                    if batch_rows.expired(reader, now, 1) or groups.due(reader, now, 1):
                        return True
                    if is_behind(reader, wanted):
                        turn.pulls = True
                        return True
                    if not knowledge.catch_up(reader, wanted, knowledge.most, looks=True):
                        knowledge.reset()
                        continue
                    walk = Walk(reader, wanted, knowledge, now, _policies(reader, wanted), LOOK_SECONDS)
                    walk.go(LOOK_ROWS)
                if walk.is_enough or walk.is_at_end or walk.is_full:
                    break
        if not walk.is_full:
            turn.is_whole = walk.is_at_end
            turn.is_ready = walk.is_enough or len(walk.fitting) >= (wanted.spec.min_size or 1)
        turn.leaves = not turn.is_ready and bool(walk.leaving)
        return turn.is_ready or turn.leaves

    def _take(self, txn: Transaction, wanted: Plan, knowledge: Knowledge, turn: Attempt) -> _Taken | _Without:
        """What was taken, if anything; what becomes known meanwhile holds unless it is rolled back."""
        spec, scope, begun = wanted.spec, wanted.scope, time.perf_counter()
        txn.on_rollback(knowledge.reset)
        turn.has_moved = False
        self._foresee(txn, wanted, knowledge, turn)
        if _expire(txn) or standing.close_due(txn):
            return "again"
        if not turn.swept:
            turn.swept = True
            curating.sweep(txn, spec.channel, TAKE_SECONDS / 2)
        at = backlog.position(txn, scope)
        knowledge.pulled = at.ready_seq
        is_new = at == backlog.START
        if is_new:
            backlog.add_consumer(txn, scope.consumer)
            # So that retention knows that it is to get what comes.
            backlog.move(txn, scope, at)
        if spec.order == "random" and at.seed != spec.seed:
            at, turn.shuffled = reshuffle(txn, wanted, at, turn.shuffled)
            knowledge.reset()
            return "again"
        lazily = spec.order == "fifo"
        behind = lag(txn, wanted, at)
        if behind and (turn.pulls or not lazily or behind <= PULL_ROWS):
            turn.pulls = False
            at, more = pull(txn, wanted, at)
            knowledge.pulled = at.ready_seq
            behind = int(more)
            turn.has_moved = True
            if more and (not lazily or time.perf_counter() - begun > TAKE_SECONDS):
                return "again"
        if not knowledge.catch_up(txn, wanted, TAKE_MARKED, looks=False):
            return "look"
        # What was found outside of the lock is to be taken, however long that takes.
        left = begun + TAKE_SECONDS - time.perf_counter()
        seconds, rows = (math.inf, TAKE_ROWS + spec.count) if turn.is_ready else (left, TAKE_ROWS)
        walk = Walk(txn, wanted, knowledge, txn.now, _policies(txn.connection, wanted), seconds)
        if turn.leaves:
            turn.leaves = False
            walk.take_leaving()
            self._set_aside(txn, wanted, knowledge, turn, walk)
            walk.keep()
            return "look"
        walk.go(rows)
        while lazily and behind and walk.is_at_end and not walk.is_late:
            # What is new has its place behind everything else.
            at, more = pull(txn, wanted, at)
            behind = int(more)
            walk.is_at_end = False
            if not knowledge.catch_up(txn, wanted, TAKE_MARKED, looks=False):
                break
            walk.go(TAKE_ROWS)
        has_aside = self._set_aside(txn, wanted, knowledge, turn, walk)
        chosen = walk.in_order()
        is_whole = (walk.is_at_end and not behind) or (turn.is_whole and turn.is_ready and not walk.is_full)
        is_all = is_whole and not walk.is_enough
        if not walk.is_enough and not (is_all and len(chosen) >= (spec.min_size or 1)):
            walk.keep()
            if walk.is_at_end:
                turn.pulls = bool(behind)
                return "again" if behind else "nothing"
            # Others write between two transactions that take out many.
            return "again" if walk.is_full and has_aside else "look"
        knowledge.remove(found.unit.key for found in chosen)
        rewards = rewards_of(txn, wanted, [found.members for found in chosen])
        units = [
            TakenUnit(found.unit.key, found.members, found.unit.deliveries + 1, kept)
            for found, kept in zip(chosen, rewards, strict=True)
        ]
        take_epoch = batch_rows.next_epoch if is_new else batch_rows.advance_epoch
        epoch = take_epoch(txn, scope.consumer)
        batch = Batch(
            batch_id=new_id("bat"),
            consumer=scope.consumer,
            epoch=epoch,
            deadline=txn.now + spec.lease_seconds,
            unit=spec.unit or "step",
            method=spec.method,
            items=[],
        )
        batch_rows.insert_batch(
            txn, spec, batch, [(found.unit, unit) for found, unit in zip(chosen, units, strict=True)]
        )
        txn.connection.trust()
        return _Taken(batch, units)

    def _set_aside(self, txn: Transaction, wanted: Plan, knowledge: Knowledge, turn: Attempt, walk: Walk) -> bool:
        """Take out what a walk found to leave; whether there was anything."""
        batch_rows.set_aside(txn, wanted.scope, walk)
        left = [*walk.gone, *walk.aside]
        knowledge.remove(left)
        turn.has_moved |= bool(left)
        return bool(left)

    def _foresee(self, txn: Transaction, wanted: Plan, knowledge: Knowledge, turn: Attempt) -> None:
        """Ask at once what an attempt asks where nothing has expired and nothing new is to be pulled."""
        scope = wanted.scope
        asked = [
            batch_rows.ask_expired(txn.now, _EXPIRED_AT_ONCE),
            groups.ask_due(txn.now, standing.CLOSED_GROUPS),
            backlog.ask_position(scope),
            batch_rows.ask_epoch(scope.consumer),
            *knowledge.ask_marked(txn, wanted, TAKE_MARKED),
        ]
        if knowledge.pulled == txn.counter(f"pk.{READY}"):
            seconds, rows = (math.inf, TAKE_ROWS + wanted.spec.count) if turn.is_ready else (TAKE_SECONDS, TAKE_ROWS)
            if turn.leaves:
                asked.append(ask_leaving(wanted, knowledge, TAKE_SECONDS))
            else:
                asked.append(ask_first(wanted, knowledge, rows, seconds))
        txn.connection.foresee(asked)

    def _read(self, wanted: Plan, taken: _Taken) -> Batch:
        batch = taken.batch
        try:
            with self._database.reading() as reader:
                reader.foresee([*ask_items(wanted, taken.units), ask_policies()])
                batch.items = read_items(reader, wanted, taken.units)
                batch.policy = rules.batch_policy(batch.items, current_policies(reader))
        except BaseException:
            # Nobody learns of this lease, so nobody could end it before its time runs out.
            self.release(batch.batch_id, batch.epoch)
            raise
        return batch


def _expire(txn: Transaction) -> bool:
    """Give back units of leases whose time is over, for a short while; whether there may be more."""
    until = time.perf_counter() + TAKE_SECONDS
    rows = batch_rows.expired(txn.connection, txn.now, _EXPIRED_AT_ONCE)
    for row in rows:
        end_batch(txn, row, "expired")
        if time.perf_counter() > until:
            return True
    return len(rows) == _EXPIRED_AT_ONCE


def _policies(reader: Reader, wanted: Plan) -> Policies:
    return current_policies(reader) if wanted.spec.max_staleness is not None else {}


def _find(txn: Transaction, batch_id: str) -> Row:
    row = batch_rows.find(txn, batch_id)
    if row is None:
        raise NotFoundError(f"no batch {batch_id!r}", path="batch_id")
    return row
