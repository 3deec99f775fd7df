"""What a consumer made of what it was handed: how stale units were at their lease, and how often they were used."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Annotated

import msgspec
from litestar import get
from litestar.datastructures import State
from litestar.params import FromPath, QueryParameter

from agentworld.api.access import reach
from agentworld.client.wire import API
from agentworld.errors import NotFoundError
from agentworld.pool.protocol import Pool
from agentworld.records import BatchRecord, BatchState, BatchUnit, Policy

MOST_BATCHES = 200
MOST_LOOKUPS = 4_000
"""So many trajectories and steps are asked for their policy."""
MOST_SECONDS = 2.0
MOST_REDELIVERED = 50
_EVENTS = 1_000
_PAGES = 20
_NO_CHANNEL = ""
"""No channel has this name, so that of events those are left which are told to all: policies among them."""

Batches = Annotated[int, QueryParameter(ge=1, le=MOST_BATCHES, description="Of the latest batches, at most so many")]


class UsageCount(msgspec.Struct, frozen=True):
    """How many have this value."""

    value: int
    count: int


class BatchUsage(msgspec.Struct, frozen=True, kw_only=True):
    """One batch. `staleness`: the mean and the most at its lease, over what has a policy; `held_seconds`: from lease to
    end, null while it is leased.
    """

    batch_id: str
    state: BatchState
    method: str
    created_at: float | None
    ended_at: float | None
    deadline: float
    units: int
    members: int
    staleness: float | None = None
    staleness_most: int | None = None
    held_seconds: float | None = None


class Redelivery(msgspec.Struct, frozen=True, kw_only=True):
    """A unit that was handed out more than once: in which batches, the latest first, and how these ended."""

    key: str
    batches: list[str]
    states: list[BatchState]


class UsageReport(msgspec.Struct, frozen=True, kw_only=True):
    """Of the latest batches of a consumer, newest first. `whole`: whether these are all of its batches. `uses`: how
    many trajectories (or steps, for units of steps) were handed out how often; `staleness`: how many were how many
    versions behind the policy that spoke at the lease. `unjudged`: those without a policy, of another run, or gone.
    `looked`: of how many the policy was looked at; less than `members` where the budget ended.
    """

    consumer: str
    whole: bool
    units: int
    members: int
    looked: int
    uses: list[UsageCount]
    staleness: list[UsageCount]
    unjudged: int
    redelivered: int
    redeliveries: list[Redelivery]
    batches: list[BatchUsage]


@get(f"{API}/consumers/{{consumer:str}}/usage", sync_to_thread=True)
def usage(state: State, consumer: FromPath[str], batches: Batches = 50) -> UsageReport:
    """How stale units were at their lease, and how often they were used, over the latest batches of a consumer."""
    return report_usage(reach(state), consumer, batches, Policies(state.pool))


class Policies:
    """Which version of a model's policy spoke when."""

    def __init__(self, pool: Pool) -> None:
        self._times: dict[str, list[float]] = defaultdict(list)
        self._spoke: dict[str, list[tuple[str, int]]] = defaultdict(list)
        after = 0
        for _ in range(_PAGES):
            events = pool.events(after, _EVENTS, channel=_NO_CHANNEL)
            for event in events:
                if event.kind == "policy.set":
                    self._times[event.data["model"]].append(event.at)
                    self._spoke[event.data["model"]].append((event.data["run"], event.data["version"]))
            if len(events) < _EVENTS:
                break
            after = events[-1].sequence

    def staleness(self, policy: Policy, at: float) -> int | None:
        """How many versions behind; null where another run spoke then. Before the first, version 0 of `default`."""
        place = bisect_right(self._times[policy.model], at)
        run, version = self._spoke[policy.model][place - 1] if place else ("default", 0)
        return version - policy.version if run == policy.run else None


def report_usage(
    pool: Pool, consumer: str, most: int, policies: Policies, clock: Callable[[], float] = time.monotonic
) -> UsageReport:
    """Look at up to `most` batches, and at the policies of what was in them while the budget lasts."""
    page = pool.list_batches(consumer=consumer, limit=most)
    records = [pool.get_batch(each.batch_id) for each in page.items]
    looks = _Looks(pool, clock)
    uses: Counter[str] = Counter()
    staleness: Counter[int] = Counter()
    handed: dict[str, list[BatchRecord]] = defaultdict(list)
    told, unjudged = [], 0
    for record in records:
        stale: list[int] = []
        members = 0
        for unit in record.units:
            handed[unit.key].append(record)
            for member in _members(unit):
                members += 1
                uses[member] += 1
                if not looks.left(member):
                    continue
                policy = looks.policy(member, is_step=bool(unit.steps))
                behind = None if policy is None else policies.staleness(policy, record.created_at or 0.0)
                if behind is None:
                    unjudged += 1
                else:
                    stale.append(behind)
        staleness.update(stale)
        told.append(_batch(record, members, stale))
    again = {key: found for key, found in handed.items() if len(found) > 1}
    worst = sorted(again.items(), key=lambda each: -len(each[1]))[:MOST_REDELIVERED]
    return UsageReport(
        consumer=consumer,
        whole=page.next_cursor is None,
        units=sum(len(record.units) for record in records),
        members=len(uses),
        looked=looks.looked,
        uses=_counts(Counter(uses.values())),
        staleness=_counts(staleness),
        unjudged=unjudged,
        redelivered=len(again),
        redeliveries=[
            Redelivery(key=key, batches=[one.batch_id for one in found], states=[one.state for one in found])
            for key, found in worst
        ],
        batches=told,
    )


class _Looks:
    """Policies of trajectories and steps, each asked for once, within a budget."""

    def __init__(self, pool: Pool, clock: Callable[[], float]) -> None:
        self._pool, self._clock = pool, clock
        self._until = clock() + MOST_SECONDS
        self._known: dict[str, Policy | None] = {}

    @property
    def looked(self) -> int:
        return len(self._known)

    def left(self, member: str) -> bool:
        """Whether it is known, or may still be asked for."""
        return member in self._known or (len(self._known) < MOST_LOOKUPS and self._clock() < self._until)

    def policy(self, member: str, *, is_step: bool) -> Policy | None:
        """Null where it has none, or is gone."""
        if member not in self._known:
            try:
                found = self._pool.get_step(member, include=()) if is_step else self._pool.get_trajectory(member)
                self._known[member] = found.policy
            except NotFoundError:
                self._known[member] = None
        return self._known[member]


def _members(unit: BatchUnit) -> tuple[str, ...]:
    return unit.steps or unit.trajectories


def _batch(record: BatchRecord, members: int, stale: list[int]) -> BatchUsage:
    held = None
    if record.state != "leased" and record.ended_at is not None and record.created_at is not None:
        held = record.ended_at - record.created_at
    return BatchUsage(
        batch_id=record.batch_id,
        state=record.state,
        method=record.method,
        created_at=record.created_at,
        ended_at=record.ended_at,
        deadline=record.deadline,
        units=len(record.units),
        members=members,
        staleness=sum(stale) / len(stale) if stale else None,
        staleness_most=max(stale) if stale else None,
        held_seconds=held,
    )


def _counts(found: Counter[int]) -> list[UsageCount]:
    return [UsageCount(value, count) for value, count in sorted(found.items())]


ROUTES = [usage]
