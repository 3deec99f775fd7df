"""What this process knows of a consumer's backlog by one spec, so that no lease looks again at what did not fit.

It knows that every unit up to the place `reached` waits, but for those that are `due`: they fit, or have changed. What
comes into a backlog, comes back or changes gets a higher mark, and is due again once its mark is seen.
"""

from __future__ import annotations

import bisect
import itertools
import re
import threading
from collections.abc import Collection, Iterable
from typing import Literal, NamedTuple

from agentworld.pool.sql import backlog
from agentworld.pool.sql.backlog import MARKS, Marked
from agentworld.pool.sql.connections import Asked, Reader
from agentworld.pool.sql.transaction import Transaction
from agentworld.pool.sql.units import Plan
from agentworld.pool.unit_rules import Policies

MOST_DUE = 50_000  # of one spec, beside those that it asks for
Place = tuple[float, int]
Known = Literal["fits", "leaves"]
_TELLS_TIME = re.compile(r"\bnow\b", re.IGNORECASE)
_TELLS_STALENESS = re.compile(r"\bstaleness\b", re.IGNORECASE)


class Due(NamedTuple):
    """A unit to be judged, by its place. `serial`: of this entry, since a unit may become due again meanwhile."""

    place: Place
    serial: int
    key: str


class Knowledge:
    """Shared by the threads that lease by the same spec for the same consumer.

    `looking`: held by who looks through the backlog outside of a transaction. `is_idle`: the last lease found too
    little. `pulled`: up to where the consumer had taken what became ready, when a lease looked last.
    """

    def __init__(self, plan: Plan) -> None:
        self.looking = threading.Lock()
        self.is_idle = False
        self.pulled = -1
        self._most = MOST_DUE + 2 * plan.spec.count
        self._start = backlog.before_all(plan.spec.order)
        where = plan.spec.where or ""
        self._by_time = _TELLS_TIME.search(where) is not None
        self._by_staleness = _TELLS_STALENESS.search(where) is not None
        self._policies: Policies = {}
        self._sequences: tuple[int, ...] = ()
        self._serials = itertools.count()
        self._generation = 0
        self._era = 0
        self._guard = threading.Lock()
        self._reached: Place = self._start
        self._mark = 0
        self._due: dict[str, int] = {}
        self._queue: list[Due] = []
        self._known: dict[str, Known] = {}

    @property
    def can_age(self) -> bool:
        """Whether the condition is about time or about which policies speak."""
        return self._by_staleness or self._by_time

    @property
    def most(self) -> int:
        """Units that may be due."""
        return self._most

    @property
    def generation(self) -> int:
        """Changes whenever everything is forgotten."""
        return self._generation

    @property
    def reached(self) -> Place:
        """Up to where units are known."""
        return self._reached

    def reset(self) -> None:
        """Forget everything: what was written is undone, or the same units may be judged otherwise now."""
        with self._guard:
            self._forget()

    def begin(self, current: Policies, sequences: tuple[int, ...]) -> None:
        """Forget what may be judged otherwise than before. `sequences`: the last numbers of all that pairs depend on.

        While one run speaks, staleness only grows: what waits for a fresher policy goes on waiting.
        """
        with self._guard:
            ages = all(
                (now := current.get(model)) is not None and now.run == was.run and now.version >= was.version
                for model, was in self._policies.items()
            ) and (not self._policies.keys() ^ current.keys())
            changed = current != self._policies
            if self._by_time or sequences != self._sequences or (changed and (self._by_staleness or not ages)):
                self._forget()
            elif changed:
                self._known.clear()
            self._policies, self._sequences = dict(current), sequences

    def catch_up(self, reader: Reader | Transaction, plan: Plan, limit: int, *, looks: bool) -> bool:
        """Take note of units with marks that were not seen; False where there are more than `limit`.

        `looks`: the caller holds `looking`. While someone does, all units become due: the looker may get to those that
        lie ahead, and have seen them as they were before.
        """
        upto = backlog.latest(reader, MARKS)
        era = reader.connection.era if isinstance(reader, Transaction) else reader.era
        with self._guard:
            if era > self._era:
                self._forget()
                self._era = era
            elif era < self._era:
                return True  # What it reads may have been taken back.
            generation, base, is_new = self._generation, self._mark, self._reached == self._start
        rows: list[Marked] = []
        if not is_new and upto > base:
            rows = backlog.marked(reader, plan.scope, plan.spec.order, base, limit + 1)
            if len(rows) > limit:
                return False
        with self._guard:
            if self._generation != generation or (is_new and self._reached != self._start):
                return True
            if is_new:
                # Nothing is known, so nothing can have changed. The looker's pages are as old as its own mark.
                if looks or not self.looking.locked():
                    self._mark = upto
                return True
            every = self.looking.locked()
            for row in rows:
                self._known.pop(row.key, None)
            entries = [(row.place, row.key) for row in rows if every or row.place <= self._reached]
            if len(entries) > self._room():
                return False
            self._add(entries)
            self._mark = max(self._mark, upto)
        return True

    def ask_marked(self, txn: Transaction, plan: Plan, limit: int) -> list[Asked]:
        """What `catch_up` will ask, if anything."""
        with self._guard:
            base, is_new = self._mark, self._reached == self._start
        if is_new or backlog.latest(txn, MARKS) <= base:
            return []
        return [backlog.ask_marked(plan.scope, base, limit + 1)]

    def next_due(
        self, limit: int, seen: Collection[int] = (), after: Due | None = None, only: Known | None = None
    ) -> list[Due]:
        """The first entries that are due behind `after`, without those whose serials were seen.

        `only`: those alone of which this is known.
        """
        found: list[Due] = []
        with self._guard:
            self._compact()
            for number in range(0 if after is None else bisect.bisect_right(self._queue, after), len(self._queue)):
                entry = self._queue[number]
                if entry.place > self._reached or len(found) == limit:
                    break
                if entry.serial in seen or self._due.get(entry.key) != entry.serial:
                    continue
                if only is None or self._known.get(entry.key) == only:
                    found.append(entry)
        return found

    def known(self, entry: Due) -> Known | None:
        """What the unit was judged to be since it became due."""
        return self._known.get(entry.key)

    def judged(self, entry: Due, kind: Known | None) -> None:
        """A unit that was due fits, leaves the backlog, or (None) waits."""
        with self._guard:
            if self._due.get(entry.key) != entry.serial:
                return
            if kind is None:
                self._drop(entry.key)
            else:
                self._known[entry.key] = kind

    def reach(
        self, generation: int, place: Place, found: Iterable[tuple[Place, str, Known]], waiting: set[str]
    ) -> bool:
        """Everything up to `place` was judged: what was found is due, what is `waiting` is not.

        False where more is due than there is room for; then units are known as far as there is.
        """
        with self._guard:
            if self._generation != generation:
                return True
            for key in waiting:
                self._drop(key)
            entries = list(found)
            room = self._room()
            fits_in = len(entries) <= room
            if not fits_in:
                if room <= 0:
                    return False
                entries = entries[:room]
                place = entries[-1][0]
            self._add([(at, key) for at, key, _ in entries])
            for _, key, kind in entries:
                self._known[key] = kind
            self._reached = max(self._reached, place)
            return fits_in

    def remove(self, keys: Iterable[str]) -> None:
        """Units that left the backlog."""
        with self._guard:
            for key in keys:
                self._drop(key)

    def _drop(self, key: str) -> None:
        self._due.pop(key, None)
        self._known.pop(key, None)

    def _compact(self) -> None:
        """Leave out entries that are not due any more, once they are most."""
        if len(self._queue) > 64 + 2 * len(self._due):
            self._queue = [entry for entry in self._queue if self._due.get(entry.key) == entry.serial]

    def _room(self) -> int:
        """How many more may be due."""
        return self._most - len(self._due)

    def _add(self, entries: list[tuple[Place, str]]) -> None:
        self._compact()
        made = [Due(place, next(self._serials), key) for place, key in entries]
        for entry in made:
            self._due[entry.key] = entry.serial
        if len(made) > 16:
            self._queue = sorted(self._queue + made)
        else:
            for entry in made:
                bisect.insort(self._queue, entry)

    def _forget(self) -> None:
        self._generation += 1
        self._reached = self._start
        self._mark = 0
        self._due = {}
        self._queue = []
        self._known = {}
