"""Leasing on SQL engines; states and rules are those of agentworld.pool.lease_rules.

A lease takes its units inside a write transaction that looks at what is known to be due and a little beyond, bounded in
rows and time. Where that is not enough, it looks through the whole backlog with read transactions, and takes what it
found; so that nothing starves, and waiting consumers cost no writer anything. Then it reads the units. Leases and
acknowledgements that wait for the writing thread together are one operation of it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from agentworld.errors import AgentWorldError, NotFoundError
from agentworld.pool.lease_rules import (
    check_ack,
    check_extend,
    check_names,
    check_release,
    check_spec,
    empty_resumption,
)
from agentworld.pool.sql import backlog, batch_rows, events, groups, items, pulling, resuming, units
from agentworld.pool.sql.backlog import READY
from agentworld.pool.sql.batch_reading import BatchReading
from agentworld.pool.sql.batch_rows import end_batch, lease_state
from agentworld.pool.sql.connections import Database, Row
from agentworld.pool.sql.gathered import Company, Gathered
from agentworld.pool.sql.knowledge import Knowledge
from agentworld.pool.sql.policies import current_policies
from agentworld.pool.sql.pulling import FEEDBACK, is_behind
from agentworld.pool.sql.taking import Attempt, Taken, Without, policies_for, take, take_together
from agentworld.pool.sql.transaction import Transaction
from agentworld.pool.sql.units import Plan, plan
from agentworld.pool.sql.walk import Walk
from agentworld.pool.sql.writer import Writer
from agentworld.records import Batch, BatchSpec, check_id

LOOK_ROWS = 100_000  # that it looks at in one go without the lock
LOOK_SECONDS = 2.0
_MOST_HINTS = 1_024
_MOST_LOOKS = 200  # of one lease that come to nothing, while others change what it looks at


class _Shared(NamedTuple):
    """What leases by one spec for one consumer share."""

    knowledge: Knowledge
    takes: Gathered[Attempt, Taken | Without]


class Leases:
    """The leases of one pool."""

    def __init__(self, database: Database, writer: Writer, clock: Callable[[], float]) -> None:
        self._database = database
        self._writer = writer
        self._clock = clock
        self._hints: OrderedDict[tuple[str, BatchSpec], _Shared] = OrderedDict()
        self._guard = threading.Lock()
        self._company = Company(waits=not database.works_elsewhere)
        self._reading = BatchReading(database, self._company)
        self._acks: Gathered[tuple[str, int], None] = Gathered(writer, _acknowledge_together, self._company)

    def lease(self, spec: BatchSpec, consumer: str) -> Batch | None:
        """See Pool."""
        spec, needs = check_spec(spec, consumer)
        wanted = plan(spec, consumer, needs)
        knowledge, takes = self._shared(wanted)
        self._begin(wanted, knowledge)
        turn = Attempt()
        if knowledge.is_idle and not self._look(wanted, knowledge, turn):
            return None
        looks = 0
        while True:
            outcome = takes.ask(turn) if turn.is_first else self._take_alone(wanted, knowledge, turn)
            if isinstance(outcome, Taken):
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
        if isinstance(batch_id, str) and batch_rows.can_be_id(batch_id):
            self._acks.ask((batch_id, epoch))
        else:
            self._writer.submit(lambda txn: _acknowledge(txn, batch_id, epoch), patient=True).result()

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

    def _shared(self, wanted: Plan) -> _Shared:
        key = (wanted.scope.consumer, wanted.spec)
        with self._guard:
            known = self._hints.pop(key, None)
            found = self._hints[key] = known or self._new(wanted)
            while len(self._hints) > _MOST_HINTS:
                self._hints.popitem(last=False)
        if known is None:
            self._compile(wanted)
        return found

    def _new(self, wanted: Plan) -> _Shared:
        knowledge = Knowledge(wanted)
        takes: Gathered[Attempt, Taken | Without] = Gathered(
            self._writer, lambda txn, turns: take_together(txn, wanted, knowledge, turns), self._company
        )
        return _Shared(knowledge, takes)

    def _take_alone(self, wanted: Plan, knowledge: Knowledge, turn: Attempt) -> Taken | Without:
        outcome = self._writer.submit(lambda txn: take(txn, wanted, knowledge, turn), patient=True).result()
        return outcome if isinstance(outcome, str) else outcome[0]

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
                    walk = Walk(
                        reader, wanted, knowledge, now, policies_for(reader, wanted), LOOK_SECONDS, wanted.spec.count
                    )
                    walk.go(LOOK_ROWS)
                if walk.is_enough or walk.is_at_end or walk.is_full:
                    break
        if not walk.is_full:
            turn.is_whole = walk.is_at_end
            turn.is_ready = walk.is_enough or len(walk.fitting) >= (wanted.spec.min_size or 1)
        turn.leaves = not turn.is_ready and bool(walk.leaving)
        return turn.is_ready or turn.leaves

    def _read(self, wanted: Plan, taken: Taken) -> Batch:
        batch = taken.batch
        try:
            self._reading.read(wanted, taken)
        except BaseException:
            # Nobody learns of this lease, so nobody could end it before its time runs out.
            self.release(batch.batch_id, batch.epoch)
            raise
        return batch


def _find(txn: Transaction, batch_id: str) -> Row:
    row = batch_rows.find(txn, batch_id)
    if row is None:
        raise _unknown(batch_id)
    return row


def _acknowledge(txn: Transaction, batch_id: str, epoch: int) -> None:
    txn.connection.trust()
    batch_rows.foresee_end(txn, batch_id)
    row = _find(txn, batch_id)
    if check_ack(batch_id, row["epoch"], epoch, lease_state(row, txn.now)):
        end_batch(txn, row, "acked")


def _acknowledge_together(txn: Transaction, asked: Sequence[tuple[str, int]]) -> list[AgentWorldError | None]:
    """Acknowledge batches by their epochs; an error in the place of each that cannot be."""
    if len(asked) == 1:
        _acknowledge(txn, *asked[0])
        return [None]
    txn.connection.trust()
    batch_ids = [batch_id for batch_id, _ in asked]
    batch_rows.foresee_ends(txn, batch_ids)
    rows = batch_rows.by_ids(txn, batch_ids)
    ended: dict[str, Row] = {}
    outcomes: list[AgentWorldError | None] = []
    for batch_id, epoch in asked:
        try:
            row = rows.get(batch_id)
            if row is None:
                raise _unknown(batch_id)
            state = "acked" if batch_id in ended else lease_state(row, txn.now)
            if check_ack(batch_id, row["epoch"], epoch, state):
                ended[batch_id] = row
            outcomes.append(None)
        except AgentWorldError as error:
            outcomes.append(error)
    batch_rows.acknowledge(txn, ended)
    return outcomes


def _unknown(batch_id: str) -> NotFoundError:
    return NotFoundError(f"no batch {batch_id!r}", path="batch_id")
