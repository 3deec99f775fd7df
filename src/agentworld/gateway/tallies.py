"""What every request counts, told to the metrics' library some times a second.

The library takes a lock and some calls for each count. Those of many requests together take it once for each counter,
and find it in the processor's caches. Who reads the metrics has all that came before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import Metric

FLUSH_SECONDS = 0.5
MOST = 10_000


class Tallies:
    """Counts that wait. `count` and `observe` from one event loop; `flush` from any thread."""

    def __init__(self) -> None:
        self._counts: deque[tuple[Counter | Gauge, float]] = deque()
        self._values: deque[tuple[Histogram, float]] = deque()
        self._due: asyncio.AbstractEventLoop | None = None

    def count(self, child: Counter | Gauge, amount: float = 1) -> None:
        """Add to a counter or gauge without labels, or with all of them said."""
        self._counts.append((child, amount))
        if self._due is not asyncio.get_running_loop():
            self._wait()

    def observe(self, child: Histogram, value: float) -> None:
        """Add a value to a histogram."""
        self._values.append((child, value))
        if self._due is not asyncio.get_running_loop():
            self._wait()
        elif len(self._values) > MOST:
            self.flush()

    def _wait(self) -> None:
        loop = self._due = asyncio.get_running_loop()  # A loop that ended before it was time tells nothing any more.
        loop.call_later(FLUSH_SECONDS, self._ring)

    def _ring(self) -> None:
        self._due = None
        self.flush()

    def flush(self) -> None:
        """Tell the library."""
        sums: dict[Counter | Gauge, float] = {}
        counts, values = self._counts, self._values
        # What another thread takes meanwhile, it tells itself.
        for _ in range(len(counts)):
            try:
                child, amount = counts.popleft()
            except IndexError:
                break
            sums[child] = sums.get(child, 0) + amount
        for child, amount in sums.items():
            child.inc(amount)
        for _ in range(len(values)):
            try:
                histogram, value = values.popleft()
            except IndexError:
                break
            histogram.observe(value)


class TalliedRegistry(CollectorRegistry):
    """Metrics that are read after what waits was told."""

    def __init__(self, tallies: Tallies) -> None:
        super().__init__()
        self._tallies = tallies

    def collect(self) -> Iterator[Metric]:
        """See CollectorRegistry."""
        self._tallies.flush()
        yield from super().collect()
