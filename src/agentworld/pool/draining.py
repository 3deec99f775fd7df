"""When the gateways of a pool have drained: each live worker knows of the pause and has no call in flight.

A worker that knows of a pause sends no further call to an engine, so what it says from then on only falls to zero. One
that was killed says nothing more, and stops counting once whoever looks has seen it silent for `SILENT_SECONDS`. That
is measured on the looking process's own monotonic clock: `seen_at` is of the pool's clock, and where that is set
forward, workers that live would seem dead, and a drain complete under their calls.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from time import monotonic

from agentworld.pool.results import Drain, GatewayState, GatewayWorker

REPORT_SECONDS = 4.0
"""How often a worker says that it lives."""
SILENT_SECONDS = 15.0
"""After so long without a word a worker counts as dead."""
KEPT_SECONDS = 3600.0
"""For so long the pool keeps the last word of a worker that died."""
LOOK_SECONDS = 0.05
"""Between two looks of one who waits."""


class Silence:
    """Since when each worker has said nothing, as this process saw it."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[GatewayWorker, float]] = {}
        self._lock = threading.Lock()

    def living(self, words: Sequence[GatewayWorker]) -> list[GatewayWorker]:
        """Those of the workers with these last words that count as alive. One that is seen for the first time does."""
        now = monotonic()
        with self._lock:
            last = {}
            for word in words:
                known = self._last.get(word.worker)
                last[word.worker] = known if known is not None and known[0] == word else (word, now)
            self._last = last
            return [word for word, since in last.values() if now - since < SILENT_SECONDS]


def judge(state: GatewayState, workers: Sequence[GatewayWorker]) -> Drain:
    """What the live workers come to."""
    unaware = sum(worker.pauses < state.pauses for worker in workers)
    in_flight = sum(worker.in_flight for worker in workers)
    drained = state.paused and not unaware and not in_flight
    return Drain(drained=drained, workers=len(workers), in_flight=in_flight, unaware=unaware)


def wait(look: Callable[[], Drain], timeout: float) -> Drain:
    """Look until all have drained, for `timeout` seconds at most; the last look."""
    deadline = time.monotonic() + timeout
    found = look()
    while not found.drained and (left := deadline - time.monotonic()) > 0:
        time.sleep(min(LOOK_SECONDS, left))
        found = look()
    return found
