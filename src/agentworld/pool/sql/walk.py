"""Looking through a backlog for units that fit a spec, a bounded number of rows at a time."""

from __future__ import annotations

import time
from typing import Literal, NamedTuple

from agentworld.pool.lease_rules import FINAL_STATES
from agentworld.pool.sql import backlog, pairs, units
from agentworld.pool.sql.backlog import Waiting
from agentworld.pool.sql.connections import Reader
from agentworld.pool.sql.transaction import Transaction
from agentworld.pool.sql.units import Plan
from agentworld.pool.unit_rules import Member, Policies

Place = tuple[float, int]
_PAGE: dict[str, int] = {"step": 256, "trajectory": 256, "group": 32, "pair": 32}


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
    """What was seen so far: units that fit, units to set aside, and keys that have no business in the backlog.

    `seconds`: after that much time `go` stops at the end of a page.
    """

    def __init__(self, reader: Reader | Transaction, plan: Plan, now: float, current: Policies, seconds: float) -> None:
        self.found: dict[str, Found] = {}
        self.aside: dict[str, SetAside] = {}
        self.gone: set[str] = set()
        self._reader = reader
        self._plan = plan
        self._now = now
        self._current = current
        self._until = time.perf_counter() + seconds

    @property
    def is_enough(self) -> bool:
        """Whether as many units fit as were asked for."""
        return len(self.found) >= self._plan.spec.count

    @property
    def is_late(self) -> bool:
        """Whether the time is over."""
        return time.perf_counter() > self._until

    @property
    def changes(self) -> bool:
        """Whether a lease would have something to write even without a batch."""
        return bool(self.aside or self.gone)

    def in_order(self) -> list[Found]:
        """The first of the units that fit, at most as many as were asked for."""
        order = self._plan.spec.order
        ordered = sorted(self.found.values(), key=lambda found: backlog.order_key(order, found.unit))
        return ordered[: self._plan.spec.count]

    def go(self, after: Place, rows: int) -> tuple[Place, bool]:
        """Look at up to `rows` units behind `after`; returns how far it came, and whether that is the end."""
        plan = self._plan
        while rows > 0 and not self.is_enough:
            missing = plan.spec.count - len(self.found)
            limit = min(rows, _PAGE[plan.scope.unit], max(16, missing + 4))
            page = backlog.page(self._reader, plan.scope, plan.spec.order, after, limit)
            self.look_at(page)
            rows -= len(page)
            if page:
                after = backlog.order_key(plan.spec.order, page[-1])
            if len(page) < limit:
                return after, True
            if self.is_late:
                break
        return after, False

    def look_at(self, page: list[Waiting]) -> None:
        """Sort the units by what is to become of them."""
        free = []
        for unit in page:
            if unit.state in FINAL_STATES:
                self.gone.add(unit.key)
            elif unit.state != "leased":
                free.append(unit)
        if not free:
            return
        judge = pairs.judge if self._plan.scope.unit == "pair" else units.judge
        verdicts = judge(self._reader, self._plan, free, self._now, self._current)
        for unit, verdict in zip(free, verdicts, strict=True):
            if verdict.kind == "gone":
                self.gone.add(unit.key)
            elif verdict.kind in ("stale", "equal"):
                self.aside[unit.key] = SetAside(unit, verdict.kind, verdict.reason or "")
            elif verdict.kind == "fits" and unit.deliveries >= self._plan.spec.max_deliveries:
                self.aside[unit.key] = SetAside(
                    unit, "poisoned", f"handed out {unit.deliveries} times, never acknowledged"
                )
            elif verdict.kind == "fits":
                self.found[unit.key] = Found(unit, verdict.members)
