"""What filters can be made of: the fields of the language, and which values are how frequent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import msgspec
from litestar import get
from litestar.datastructures import State
from litestar.params import FromQuery

from agentworld.api.access import reach
from agentworld.api.scanning import MOST_ROWS, Rows, Scan
from agentworld.api.trajectories import Where
from agentworld.client.wire import API
from agentworld.errors import QueryError
from agentworld.pool.protocol import Page, Pool
from agentworld.pool.values import REVIEWED
from agentworld.query import Subject, parse
from agentworld.query.fields import Kind, fields_of
from agentworld.records import Trajectory

MOST_VALUES = 20
"""Values of a field that are named, the most frequent first."""
BUCKETS = 8


class WhereField(msgspec.Struct, frozen=True):
    """One field of `where`. `keys`: `NAME` where it is a map, `PATH` where its keys lead into objects; `plain`: it may
    stand without a key. `indexed`: an index answers conditions on it (without a key).
    """

    name: str
    kind: Kind
    doc: str
    keys: str | None
    plain: bool
    indexed: bool


class FacetValue(msgspec.Struct, frozen=True):
    """A value, null for none, and how many of those that were looked at have it."""

    value: str | None
    count: int


class FacetBucket(msgspec.Struct, frozen=True):
    """From `low` up to, in the last one with, `high`; where both are the same, that value."""

    low: float
    high: float
    count: int


class Facets(msgspec.Struct, frozen=True, kw_only=True):
    """Counts over the newest trajectories that match. `looked`: how many. `whole`: whether these are all; where not,
    each count is a least one. `rewards`: primary rewards in buckets; `unrewarded` have none.
    """

    looked: int
    whole: bool
    values: dict[str, list[FacetValue]]
    rewards: list[FacetBucket]
    unrewarded: int


@get(f"{API}/fields", sync_to_thread=False)
def list_fields(subject: FromQuery[Subject] = "trajectories") -> Page[WhereField]:
    """The fields that `where` knows, with what they mean."""
    return Page(
        [
            WhereField(field.name, field.kind, field.doc, field.keys, field.plain, subject in field.indexed)
            for field in fields_of(subject)
        ]
    )


@get(f"{API}/facets", sync_to_thread=True)
def facets(state: State, where: Where = None, channel: FromQuery[str | None] = None, limit: Rows = MOST_ROWS) -> Facets:
    """Which values the newest trajectories that match have, with counts, for filters to choose from."""
    return count_facets(reach(state), where, channel, limit)


def count_facets(pool: Pool, where: str | None, channel: str | None, limit: int) -> Facets:
    """Look at up to `limit` trajectories, the newest first."""
    counts: dict[str, Counter[str | None]] = {name: Counter() for name in _VALUES}
    rewards: list[float] = []
    looked: set[str] = set()
    scan = Scan(pool, where, channel, limit)
    for item in scan:
        looked.add(item.trajectory_id)
        for name, read in _VALUES.items():
            counts[name][read(item)] += 1
        if item.reward is not None:
            rewards.append(item.reward)
    if (reviews := _count_reviews(pool, where, channel, limit, looked)) is not None:
        counts["review"] = reviews
    return Facets(
        looked=scan.looked,
        whole=scan.whole,
        values={name: [FacetValue(*each) for each in found.most_common(MOST_VALUES)] for name, found in counts.items()},
        rewards=bucketed(rewards),
        unrewarded=scan.looked - len(rewards),
    )


def _count_reviews(
    pool: Pool, where: str | None, channel: str | None, limit: int, looked: set[str]
) -> Counter[str | None] | None:
    """What became of the reviews of those that were looked at; None where the expression leaves no room to ask."""
    found: Counter[str | None] = Counter()
    for state in REVIEWED:
        asked = f"review == '{state}'" if where is None else f"review == '{state}' and ({where})"
        try:
            parse(asked, "trajectories")
        except QueryError:  # By itself it has been answered, so it is as long or as deep as one may be.
            return None
        found[state] = sum(each.trajectory_id in looked for each in Scan(pool, asked, channel, limit))
    found[None] = len(looked) - found.total()
    return +found


def bucketed(values: Iterable[float]) -> list[FacetBucket]:
    """Counts of `values` in those of `BUCKETS` ranges of equal width that have any. So few different ones, such as 0
    and 1, are each a bucket of their own.
    """
    known = Counter(values)
    if len(known) <= BUCKETS:
        return [FacetBucket(value, value, count) for value, count in sorted(known.items())]
    low, high = min(known), max(known)
    # Halves first: the difference of two doubles can be too large for one.
    width = high / BUCKETS - low / BUCKETS
    if width <= 0:
        return [FacetBucket(low, high, known.total())]
    edges = [min(high, low + width * number) for number in range(BUCKETS)] + [high]
    counts: Counter[int] = Counter()
    for value, count in known.items():
        counts[min(BUCKETS - 1, int(value / width - low / width))] += count
    return [FacetBucket(edges[number], edges[number + 1], count) for number, count in sorted(counts.items())]


def _task_set(item: Trajectory) -> str | None:
    named = (item.task or {}).get("task_set")
    return named if isinstance(named, str) else None


_VALUES: dict[str, Callable[[Trajectory], str | None]] = {
    "status": lambda item: item.status,
    "readiness": lambda item: item.readiness,
    "channel": lambda item: item.channel,
    "agent": lambda item: item.agent,
    "task.task_set": _task_set,
}

ROUTES = [list_fields, facets]
