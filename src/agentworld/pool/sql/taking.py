"""Taking the units of leases inside a write transaction, for one lease or for several that wait together.

It looks at what is known to be due and a little beyond, bounded in rows and time. Leases by the same spec for the same
consumer share one look: they get what they would have got one after the other.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agentworld.pool.sql import backlog, batch_rows, curating, groups, standing
from agentworld.pool.sql.backlog import READY
from agentworld.pool.sql.batch_rows import end_batch
from agentworld.pool.sql.connections import Reader
from agentworld.pool.sql.items import TakenUnit, rewards_of
from agentworld.pool.sql.knowledge import Knowledge
from agentworld.pool.sql.policies import current_policies
from agentworld.pool.sql.pulling import PULL_ROWS, lag, pull, reshuffle
from agentworld.pool.sql.transaction import Transaction
from agentworld.pool.sql.units import Plan
from agentworld.pool.sql.walk import Found, Walk, ask_first, ask_leaving
from agentworld.pool.unit_rules import Policies
from agentworld.records import Batch, new_id

TAKE_ROWS = 1_024  # of a backlog that a lease looks at while it holds the pool's lock
TAKE_MARKED = 4_096
TAKE_SECONDS = 0.01
TAKEN_TOGETHER = 256  # units of leases that wait together, but for those of a single one
_EXPIRED_AT_ONCE = 64


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

    @property
    def is_first(self) -> bool:
        """Whether it begins with nothing that others have not."""
        return not (self.is_whole or self.is_ready or self.leaves or self.pulls) and self.shuffled is None

    def follow(self, other: Attempt) -> None:
        """Go on from where another one ended."""
        self.has_moved, self.pulls, self.leaves = other.has_moved, other.pulls, other.leaves
        self.shuffled, self.swept = other.shuffled, other.swept


@dataclass(slots=True)
class Taken:
    """A batch, at first without its items, and the units that they are read of. `together`: all batches that one
    operation took, this one among them.
    """

    batch: Batch
    units: list[TakenUnit]
    together: list[Taken]
    is_read: bool = False


# What else an attempt comes to: nothing is there; something is done, try again; look outside of the lock.
Without = Literal["nothing", "again", "look"]


def take_together(
    txn: Transaction, wanted: Plan, knowledge: Knowledge, turns: Sequence[Attempt]
) -> list[Taken | Without]:
    """As `take` for each of the turns, all of which are first ones; those that others leave nothing to try again."""
    most = min(len(turns), max(1, TAKEN_TOGETHER // wanted.spec.count))
    first, *others = turns
    outcome = take(txn, wanted, knowledge, first, most)
    if not isinstance(outcome, str):
        without: list[Taken | Without] = ["again"] * (len(turns) - len(outcome))
        return [*outcome, *without]
    for turn in others:
        turn.follow(first)
    return [outcome for _ in turns]


def take(txn: Transaction, wanted: Plan, knowledge: Knowledge, turn: Attempt, most: int = 1) -> list[Taken] | Without:
    """Up to `most` batches, if anything fits; what becomes known meanwhile holds unless it is rolled back."""
    spec, scope, begun = wanted.spec, wanted.scope, time.perf_counter()
    txn.on_rollback(knowledge.reset)
    turn.has_moved = False
    _foresee(txn, wanted, knowledge, turn, most)
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
    walk = Walk(txn, wanted, knowledge, txn.now, policies_for(txn.connection, wanted), seconds, most * spec.count)
    if turn.leaves:
        turn.leaves = False
        walk.take_leaving()
        _set_aside(txn, wanted, knowledge, turn, walk)
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
    has_aside = _set_aside(txn, wanted, knowledge, turn, walk)
    chosen = walk.in_order()
    is_whole = (walk.is_at_end and not behind) or (turn.is_whole and turn.is_ready and not walk.is_full)
    shares = [chosen[at : at + spec.count] for at in range(0, len(chosen), spec.count)]
    if shares and len(shares[-1]) < spec.count:
        is_all = is_whole and not walk.is_enough
        if not (is_all and len(shares[-1]) >= (spec.min_size or 1)):
            del shares[-1]
    if not shares:
        walk.keep()
        if walk.is_at_end:
            turn.pulls = bool(behind)
            return "again" if behind else "nothing"
        # Others write between two transactions that take out many.
        return "again" if walk.is_full and has_aside else "look"
    return _hand_out(txn, wanted, knowledge, walk, shares, is_new)


def _hand_out(
    txn: Transaction, wanted: Plan, knowledge: Knowledge, walk: Walk, shares: Sequence[Sequence[Found]], is_new: bool
) -> list[Taken]:
    """Batches of units that were found; the rest stays due."""
    spec, consumer = wanted.spec, wanted.scope.consumer
    chosen = [found for share in shares for found in share]
    walk.keep_but(found.unit.key for found in chosen)
    knowledge.remove(found.unit.key for found in chosen)
    rewards = iter(rewards_of(txn, wanted, [found.members for found in chosen]))
    epoch = batch_rows.next_epochs(txn, consumer, len(shares), is_new=is_new)
    taken: list[Taken] = []
    for number, share in enumerate(shares):
        batch = Batch(
            batch_id=new_id("bat"),
            consumer=consumer,
            epoch=epoch + number,
            deadline=txn.now + spec.lease_seconds,
            unit=spec.unit or "step",
            method=spec.method,
            items=[],
        )
        units = [TakenUnit(found.unit.key, found.members, found.unit.deliveries + 1, next(rewards)) for found in share]
        taken.append(Taken(batch, units, taken))
    waiting = [[found.unit for found in share] for share in shares]
    batch_rows.insert_batches(txn, spec, [(one.batch, one.units) for one in taken], waiting)
    txn.connection.trust()
    return taken


def _set_aside(txn: Transaction, wanted: Plan, knowledge: Knowledge, turn: Attempt, walk: Walk) -> bool:
    """Take out what a walk found to leave; whether there was anything."""
    batch_rows.set_aside(txn, wanted.scope, walk)
    left = [*walk.gone, *walk.aside]
    knowledge.remove(left)
    turn.has_moved |= bool(left)
    return bool(left)


def _foresee(txn: Transaction, wanted: Plan, knowledge: Knowledge, turn: Attempt, most: int) -> None:
    """Ask at once what an attempt asks where nothing has expired and nothing new is to be pulled."""
    if not txn.connection.works_ahead:
        return
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
            asked.append(ask_first(wanted, knowledge, rows, seconds, most * wanted.spec.count))
    txn.connection.foresee(asked)


def _expire(txn: Transaction) -> bool:
    """Give back units of leases whose time is over, for a short while; whether there may be more."""
    until = time.perf_counter() + TAKE_SECONDS
    rows = batch_rows.expired(txn.connection, txn.now, _EXPIRED_AT_ONCE)
    for row in rows:
        end_batch(txn, row, "expired")
        if time.perf_counter() > until:
            return True
    return len(rows) == _EXPIRED_AT_ONCE


def policies_for(reader: Reader, wanted: Plan) -> Policies:
    """Which policies speak now, where the spec asks for it."""
    return current_policies(reader) if wanted.spec.max_staleness is not None else {}
