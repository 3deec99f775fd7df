"""Looking through a backlog for units that fit a spec, a bounded number of rows at a time."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Literal, NamedTuple

from agentworld.pool.lease_rules import FINAL_STATES
from agentworld.pool.sql import backlog, pairs, units
from agentworld.pool.sql.backlog import Waiting
from agentworld.pool.sql.connections import Asked, Reader
from agentworld.pool.sql.knowledge import Due, Knowledge, Known, Place
from agentworld.pool.sql.transaction import Transaction
from agentworld.pool.sql.units import Plan
from agentworld.pool.unit_rules import Member, Policies, Verdict

FITS: Known = "fits"
MOST_LEAVING = 512  # that one walk finds and one transaction takes out
_FIRST_PAGE = 8  # for few units; pages double, so that what fits is not far beyond what is taken
_LARGE_PAGE = 512
_PAGE: dict[str, int] = {"step": 256, "trajectory": 256, "group": 32, "pair": 32}


def _portion(limit: int, rows: int, missing: int) -> int:
    return min(rows, limit, max(_FIRST_PAGE, missing + 4))


def _most_at_once(plan: Plan, seconds: float) -> int:
    # Where time does not count, few statements do.
    return _LARGE_PAGE if math.isinf(seconds) else _PAGE[plan.scope.unit]


def ask_first(plan: Plan, knowledge: Knowledge, rows: int, seconds: float, count: int) -> Asked:
    """What `go` will ask first for `count` units, unless something becomes due before."""
    portion = _portion(_most_at_once(plan, seconds), rows, count)
    if entries := knowledge.next_due(portion):
        return backlog.ask_named(plan.scope, [entry.key for entry in entries])
    return backlog.ask_page(plan.scope, plan.spec.order, knowledge.reached, portion)


def ask_leaving(plan: Plan, knowledge: Knowledge, seconds: float) -> Asked:
    """What `take_leaving` will ask first."""
    entries = knowledge.next_due(_most_at_once(plan, seconds), only="leaves")
    return backlog.ask_named(plan.scope, [entry.key for entry in entries])


class Found(NamedTuple):
    """A unit that fits, with what goes with it."""

    unit: Waiting
    members: tuple[Member, ...]


class SetAside(NamedTuple):
    """A unit that this consumer is not to get."""

    unit: Waiting
    why: Literal["stale", "equal", "poisoned"]
    reason: str


class Walk:
    """What was seen so far: units that fit, in order, units to set aside, and keys without business in the backlog.
    `count`: how many units that fit are enough.

    What is due comes first, then what lies beyond; both in order, and no further than is asked for. `is_at_end`:
    everything there was judged. A walk in a transaction judges everything itself; one outside believes what is known
    of units that are due, which then are `fitting` and `leaving` without being `found`. `seconds`: after that much
    time it stops at the end of a page; it has then judged one, if there was one.
    """

    def __init__(
        self,
        reader: Reader | Transaction,
        plan: Plan,
        knowledge: Knowledge,
        now: float,
        current: Policies,
        seconds: float,
        count: int,
    ) -> None:
        self.found: dict[str, Found] = {}
        self.aside: dict[str, SetAside] = {}
        self.gone: set[str] = set()
        self.fitting: set[str] = set()
        self.leaving: set[str] = set()
        self.is_at_end = False
        self._reader = reader
        self._plan = plan
        self._count = count
        self._knowledge = knowledge
        self._now = now
        self._current = current
        self._believes = not isinstance(reader, Transaction)
        self._until = time.perf_counter() + seconds
        self._limit = _most_at_once(plan, seconds)
        self._growth = 1
        self._is_blocked = False
        self._has_judged = False
        self._seen: set[int] = set()
        self._at: Place | None = None

    @property
    def is_enough(self) -> bool:
        """Whether as many units fit as were asked for."""
        return len(self.fitting) >= self._count

    @property
    def is_full(self) -> bool:
        """Whether so many units leave that they are to be taken out before it goes on."""
        return len(self.leaving) >= MOST_LEAVING or self._is_blocked

    @property
    def is_late(self) -> bool:
        """Whether the time is over."""
        return time.perf_counter() > self._until

    @property
    def _is_over(self) -> bool:
        return self.is_enough or self.is_full or (self._has_judged and self.is_late)

    def go(self, rows: int) -> None:
        """Judge up to `rows` units more."""
        last: Due | None = None
        while rows > 0 and not self._is_over:
            growth = self._growth
            entries = self._knowledge.next_due(self._portion(rows), self._seen, last)
            if not entries:
                self._growth = growth  # Nothing was looked at.
                break
            last = entries[-1]
            rows -= self._look_at_due(entries)
        else:
            return
        while rows > 0 and not self._is_over:
            wanted = self._portion(rows)
            generation = self._knowledge.generation
            after = self._knowledge.reached if self._at is None else self._at
            page = backlog.page(self._reader, self._plan.scope, self._plan.spec.order, after, wanted)
            rows -= len(page)
            self._has_judged = True
            self._is_blocked = not self._look_at_page(page, after, generation)
            if self._is_blocked:
                return
            if len(page) < wanted:
                self.is_at_end = not self.is_enough
                return

    def take_leaving(self) -> None:
        """Judge those units alone that were seen to leave."""
        last: Due | None = None
        while not self._is_over:
            entries = self._knowledge.next_due(self._limit, self._seen, last, "leaves")
            if not entries:
                return
            last = entries[-1]
            self._look_at_due(entries)

    def _portion(self, rows: int) -> int:
        """Units to look at next."""
        missing = self._count - len(self.fitting)
        growth, self._growth = self._growth, min(2 * self._growth, self._limit)
        return min(rows, self._limit, growth * _portion(self._limit, rows, missing))

    def in_order(self) -> list[Found]:
        """The units that fit."""
        order = self._plan.spec.order
        return sorted(self.found.values(), key=lambda found: backlog.order_key(order, found.unit))

    def keep(self) -> None:
        """What was found and not taken stays due."""
        order = self._plan.spec.order
        rest = [(backlog.order_key(order, one.unit), key, FITS) for key, one in self.found.items()]
        self._knowledge.reach(self._knowledge.generation, self._knowledge.reached, rest, set())

    def keep_but(self, taken: Iterable[str]) -> None:
        """As `keep`, but for those that are taken."""
        for key in taken:
            del self.found[key]
        if self.found:
            self.keep()

    def _look_at_due(self, entries: list[Due]) -> int:
        """Returns how many were judged now, rather than known."""
        self._seen.update(entry.serial for entry in entries)
        if self._believes:
            unknown = []
            for entry in entries:
                kind = self._knowledge.known(entry)
                if kind is None:
                    unknown.append(entry)
                else:
                    (self.fitting if kind == "fits" else self.leaving).add(entry.key)
            entries = unknown
        if not entries:
            return 0
        self._has_judged = True
        there = {unit.key: unit for unit in backlog.named(self._reader, self._plan.scope, [e.key for e in entries])}
        present = [entry for entry in entries if entry.key in there]
        for entry in entries:
            if entry.key not in there:
                self._knowledge.judged(entry, None)
        kinds = self._judge([there[entry.key] for entry in present])
        for entry, kind in zip(present, kinds, strict=True):
            self._knowledge.judged(entry, kind)
        return len(entries)

    def _look_at_page(self, page: list[Waiting], after: Place, generation: int) -> bool:
        """Returns whether all of it is known now."""
        order = self._plan.spec.order
        kinds = self._judge(page)
        if self.is_enough:
            # What lies behind is left for later: other processes may be first.
            last = max(number for number, unit in enumerate(page) if unit.key in self.fitting)
            page, kinds = page[: last + 1], kinds[: last + 1]
        self._at = backlog.order_key(order, page[-1]) if page else after
        places = [backlog.order_key(order, unit) for unit in page]
        kept = [
            (place, unit.key, kind)
            for place, unit, kind in zip(places, page, kinds, strict=True)
            if kind is not None and not (unit.key in self.found and not self._believes)
        ]
        # Outside of a transaction they may have changed since.
        waiting = set() if self._believes else {u.key for u, kind in zip(page, kinds, strict=True) if kind is None}
        return self._knowledge.reach(generation, self._at, kept, waiting)

    def _judge(self, listed: list[Waiting]) -> list[Known | None]:
        """Sort the units by what is to become of them, in order, until it is enough."""
        kinds: list[Known | None] = []
        free = [unit for unit in listed if unit.state not in (*FINAL_STATES, "leased")]
        judge = pairs.judge if self._plan.scope.unit == "pair" else units.judge
        found = judge(self._reader, self._plan, free, self._now, self._current) if free else []
        verdicts = dict(zip((unit.key for unit in free), found, strict=True))
        for unit in listed:
            verdict = verdicts.get(unit.key)
            is_over = self.is_enough
            if verdict is None or verdict.kind == "gone":
                kinds.append("leaves")
                if not is_over:
                    self.gone.add(unit.key)
            elif verdict.kind == "waits":
                kinds.append(None)
            elif verdict.kind == "fits" and unit.deliveries < self._plan.spec.max_deliveries:
                kinds.append("fits")
                if not is_over:
                    self.fitting.add(unit.key)
                    self.found[unit.key] = Found(unit, verdict.members)
            else:
                kinds.append("leaves")
                if not is_over:
                    self._leave(unit, verdict)
            if kinds[-1] == "leaves" and not is_over:
                self.leaving.add(unit.key)
        return kinds

    def _leave(self, unit: Waiting, verdict: Verdict) -> None:
        if verdict.kind in ("stale", "equal"):
            self.aside[unit.key] = SetAside(unit, verdict.kind, verdict.reason or "")
        else:
            reason = f"handed out {unit.deliveries} times, never acknowledged"
            self.aside[unit.key] = SetAside(unit, "poisoned", reason)
