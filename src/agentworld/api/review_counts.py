"""How many reviews wait, and what became of the others."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Annotated

import msgspec
from litestar import get
from litestar.datastructures import State
from litestar.params import FromQuery, QueryParameter

from agentworld.api.access import reach
from agentworld.api.scanning import MOST_ROWS, MOST_SECONDS
from agentworld.client.wire import API
from agentworld.pool.protocol import Pool
from agentworld.records import Review

By = Annotated[str | None, QueryParameter(description="A reviewer: what they skipped waits for others alone")]
_PAGE = 1000


class ReviewCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Reviews of the highest worth by what became of them, each in one count. `waiting`: for anybody, or for `by`;
    `skipped`: by `by`, so they wait for others; `claimed`: somebody looks at them now; `withdrawn`: nobody asks for
    them any more. `whole`: whether these are all; where not, each count is a least one.
    """

    waiting: int
    skipped: int
    claimed: int
    accepted: int
    rejected: int
    withdrawn: int
    whole: bool


@get(f"{API}/review-counts", sync_to_thread=True)
def review_counts(state: State, by: By = None, channel: FromQuery[str | None] = None) -> ReviewCounts:
    """How many reviews wait, were skipped, are looked at and are done."""
    return count_reviews(reach(state), by, channel)


def count_reviews(
    pool: Pool, by: str | None, channel: str | None, clock: Callable[[], float] = time.monotonic
) -> ReviewCounts:
    """Look at up to MOST_ROWS reviews."""
    counts: Counter[str] = Counter()
    begun = clock()
    cursor: str | None = None
    while True:
        page = pool.list_reviews(channel=channel, cursor=cursor, limit=_PAGE)
        counts.update(_standing(each, by) for each in page.items)
        cursor = page.next_cursor
        if cursor is None or counts.total() >= MOST_ROWS or clock() - begun > MOST_SECONDS:
            break
    named = {name: counts[name] for name in ReviewCounts.__struct_fields__ if name != "whole"}
    return ReviewCounts(**named, whole=cursor is None)


def _standing(review: Review, by: str | None) -> str:
    match review.state:
        case "done":
            return f"{review.verdict}ed"
        case "open":
            return "skipped" if by in review.skipped_by else "waiting"
        case other:
            return other


ROUTES = [review_counts]
