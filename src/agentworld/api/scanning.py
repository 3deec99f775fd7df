"""Looking at the newest trajectories within a budget, and saying whether these were all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Annotated

from litestar.params import QueryParameter

from agentworld.pool.protocol import Pool
from agentworld.records import Trajectory

MOST_ROWS = 10_000
"""So many of the newest trajectories are looked at."""
MOST_SECONDS = 2.0
"""And no further page is read after so long."""
_PAGE = 1000

Rows = Annotated[int, QueryParameter(ge=1, le=MOST_ROWS, description="Trajectories that are looked at, at most")]


class Scan:
    """The newest trajectories for which `where` holds; iterate once. Then `looked` is how many there were, and `whole`
    whether nothing was left out.
    """

    def __init__(
        self,
        pool: Pool,
        where: str | None,
        channel: str | None,
        limit: int = MOST_ROWS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pool, self._where, self._channel, self._limit, self._clock = pool, where, channel, limit, clock
        self.looked = 0
        self.whole = False

    def __iter__(self) -> Iterator[Trajectory]:
        cursor: str | None = None
        begun = self._clock()
        while True:
            page = self._pool.list_trajectories(
                where=self._where,
                channel=self._channel,
                order="newest",
                cursor=cursor,
                limit=min(_PAGE, self._limit - self.looked),
            )
            self.looked += len(page.items)
            yield from page.items
            cursor = page.next_cursor
            self.whole = cursor is None
            if cursor is None or self.looked >= self._limit or self._clock() - begun > MOST_SECONDS:
                return
