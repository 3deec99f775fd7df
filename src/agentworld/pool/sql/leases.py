"""Leasing on SQL engines; states and rules are those of agentworld.pool.lease_rules.

A lease takes its units inside a write transaction that walks the front of the consumer's backlog, bounded in rows and
time. Where that is not enough, it looks through the whole backlog with read transactions, and takes what it found; so
that nothing starves, and waiting consumers cost no writer anything. Then it reads the units.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agentworld.errors import NotFoundError
from agentworld.pool import rules
from agentworld.pool.lease_rules import (
    check_ack,
    check_extend,
    check_release,
    empty_resumption,
    requirements,
)
from agentworld.pool.sql import backlog, batch_rows, groups, standing
from agentworld.pool.sql.batch_rows import end_batch, lease_state
from agentworld.pool.sql.connections import Database, Reader, Row
from agentworld.pool.sql.items import TakenUnit, read_items, rewards_of
from agentworld.pool.sql.pulling import is_behind, pull, reshuffle
from agentworld.pool.sql.signals import current_policies
from agentworld.pool.sql.transaction import Transaction
from agentworld.pool.sql.units import Plan, plan
from agentworld.pool.sql.walk import Place, Walk
from agentworld.pool.sql.writer import Writer
from agentworld.pool.unit_rules import Policies
from agentworld.query import parse
from agentworld.records import Batch, BatchSpec, check_id, new_id

FRONT_ROWS = 256  # of a backlog that each lease looks at first
TAKE_ROWS = 1_024  # that it looks at while it holds the pool's lock
TAKE_SECONDS = 0.01
LOOK_ROWS = 100_000  # that it looks at in one go without the lock
LOOK_SECONDS = 2.0
_MOST_HINTS = 1_024
_MOST_ROUNDS = 1_000_000  # a lease that pulls a long backlog makes many


@dataclass(slots=True)
class _Hint:
    """What this process remembers of a consumer's leases by one spec: where the last one came to, beyond which a walk
    goes on that the front did not satisfy, and whether there was too little.
    """

    cursor: Place | None = None
    looked: Place | None = None
    is_idle: bool = False


@dataclass(slots=True)
class Attempt:
    """What one attempt to take units begins with, and hands on to the next."""

    cursor: Place | None = None
    candidates: list[str] = field(default_factory=list)
    is_whole: bool = False  # the candidates are all there are
    pulls: bool = False
    shuffled: int | None = None


class _Taken(NamedTuple):
    batch: Batch
    units: list[TakenUnit]
    cursor: Place


class Leases:
    """The leases of one pool."""

    def __init__(self, database: Database, writer: Writer, clock: Callable[[], float]) -> None:
        self._database = database
        self._writer = writer
        self._clock = clock
        self._hints: OrderedDict[tuple[str, BatchSpec], _Hint] = OrderedDict()

    def lease(self, spec: BatchSpec, consumer: str) -> Batch | None:
        """See Pool."""
        spec = spec.resolved()
        check_id(consumer, "consumer")
        wanted = plan(spec, consumer, requirements(spec))
        if spec.where is not None:
            parse(spec.where, "steps" if spec.unit == "step" else "trajectories")
        hint = self._hint(consumer, spec)
        turn = Attempt(cursor=hint.cursor)
        if hint.is_idle and not self._look(wanted, hint, turn):
            return None
        taken = None
        for _ in range(_MOST_ROUNDS):
            outcome = self._writer.submit(lambda txn: self._take(txn, wanted, turn)).result()
            if isinstance(outcome, _Taken):
                taken = outcome
                break
            if not outcome and not self._look(wanted, hint, turn):
                break
        hint.is_idle = taken is None
        if taken is None:
            return None
        hint.cursor = taken.cursor
        return self._read(wanted, taken)

    def ack(self, batch_id: str, epoch: int) -> None:
        """See Pool."""

        def operation(txn: Transaction) -> None:
            row = _find(txn, batch_id)
            if check_ack(batch_id, row["epoch"], epoch, lease_state(row, txn.now)):
                end_batch(txn, row, "acked")

        self._writer.submit(operation).result()

    def release(self, batch_id: str, epoch: int) -> None:
        """See Pool."""

        def operation(txn: Transaction) -> None:
            row = _find(txn, batch_id)
            if check_release(batch_id, row["epoch"], epoch, row["state"]):
                end_batch(txn, row, "released")

        self._writer.submit(operation).result()

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
        wanted = dict.fromkeys(applied)

        def operation(txn: Transaction) -> dict[str, list[str]]:
            result = empty_resumption()
            batch_rows.next_epoch(txn, consumer)
            # Released first: what an applied batch lost to a later one of this consumer is then free to acknowledge.
            for row in batch_rows.held(txn, consumer):
                if row["batch_id"] not in wanted:
                    end_batch(txn, row, "released")
                    result["released"].append(row["batch_id"])
            for batch_id in wanted:
                row_of = batch_rows.find(txn, batch_id)
                if row_of is None or row_of["consumer"] != consumer:
                    result["unknown"].append(batch_id)
                    continue
                if row_of["state"] != "acked":
                    end_batch(txn, row_of, "acked")
                result["acknowledged"].append(batch_id)
            return result

        return self._writer.submit(operation).result()

    def _hint(self, consumer: str, spec: BatchSpec) -> _Hint:
        key = (consumer, spec)
        hint = self._hints.pop(key, None) or _Hint()
        self._hints[key] = hint
        while len(self._hints) > _MOST_HINTS:
            self._hints.popitem(last=False)
        return hint

    def _look(self, wanted: Plan, hint: _Hint, turn: Attempt) -> bool:
        """Whether a lease has something to do, as a reader sees it; what it found goes into `turn`."""
        turn.candidates, turn.is_whole, turn.pulls = [], False, False
        now = self._clock()
        with self._database.reading() as reader:
            if batch_rows.expired(reader, now) or groups.due(reader, now):
                return True
            if is_behind(reader, wanted):
                turn.pulls = True
                return True
            walk = Walk(reader, wanted, now, _policies(reader, wanted), LOOK_SECONDS)
            begin = hint.looked or backlog.before_all(wanted.spec.order)
            at, ended = walk.go(begin, LOOK_ROWS)
            if ended and hint.looked is not None:
                at, ended = walk.go(backlog.before_all(wanted.spec.order), LOOK_ROWS)
        # The next look goes on where this one had to stop.
        hint.looked = None if ended or walk.is_enough else at
        turn.candidates = [found.unit.key for found in walk.in_order()]
        turn.is_whole = True
        return walk.changes or len(turn.candidates) >= (wanted.spec.min_size or 1)

    def _take(self, txn: Transaction, wanted: Plan, turn: Attempt) -> _Taken | bool:
        """What was taken; else whether to try again at once, since a backlog is still being brought up to date."""
        spec, scope = wanted.spec, wanted.scope
        for row in batch_rows.expired(txn.connection, txn.now):
            end_batch(txn, row, "expired")
        standing.close_due(txn)
        at = backlog.position(txn, scope)
        if at == backlog.START:
            backlog.add_consumer(txn, scope.consumer)
        if spec.order == "random" and at.seed != spec.seed:
            at, turn.shuffled = reshuffle(txn, wanted, at, turn.shuffled)
            if turn.shuffled is not None:
                return True
        lazily = spec.order == "fifo"
        if turn.pulls or not lazily:
            at, behind = pull(txn, wanted, at)
            if behind and not lazily:
                return True
        walk = Walk(txn, wanted, txn.now, _policies(txn.connection, wanted), TAKE_SECONDS)
        if turn.candidates:
            walk.look_at(backlog.named(txn, scope, turn.candidates))
        reached, ended = walk.go(backlog.before_all(spec.order), FRONT_ROWS)
        whole = True
        if not ended and not walk.is_enough:
            if turn.cursor is not None and turn.cursor > reached:
                reached, whole = turn.cursor, False
            reached, ended = walk.go(reached, TAKE_ROWS)
        behind = lazily and ended and not walk.is_enough
        while behind and not walk.is_enough and not walk.is_late:
            # What is new has its place behind everything else.
            at, behind = pull(txn, wanted, at)
            reached, ended = walk.go(reached, TAKE_ROWS)
        batch_rows.set_aside(txn, scope, walk)
        chosen = walk.in_order()
        is_all = turn.is_whole or (ended and whole and not behind)
        if not walk.is_enough and not (is_all and len(chosen) >= (spec.min_size or 1)):
            return behind
        rewards = rewards_of(txn, wanted, [found.members for found in chosen])
        units = [
            TakenUnit(found.unit.key, found.members, found.unit.deliveries + 1, kept)
            for found, kept in zip(chosen, rewards, strict=True)
        ]
        epoch = batch_rows.next_epoch(txn, scope.consumer)
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
        return _Taken(batch, units, backlog.order_key(spec.order, chosen[-1].unit))

    def _read(self, wanted: Plan, taken: _Taken) -> Batch:
        batch = taken.batch
        try:
            with self._database.reading() as reader:
                batch.items = read_items(reader, wanted, taken.units)
                batch.policy = rules.batch_policy(batch.items, current_policies(reader))
        except BaseException:
            # Nobody learns of this lease, so nobody could end it before its time runs out.
            self.release(batch.batch_id, batch.epoch)
            raise
        return batch


def _policies(reader: Reader, wanted: Plan) -> Policies:
    return current_policies(reader) if wanted.spec.max_staleness is not None else {}


def _find(txn: Transaction, batch_id: str) -> Row:
    row = batch_rows.find(txn, batch_id)
    if row is None:
        raise NotFoundError(f"no batch {batch_id!r}", path="batch_id")
    return row
