"""When the gateways of a pool have drained: each live worker knows of the pause and has no call in flight.

A worker that knows of a pause sends no further call to an engine, so what it says from then on only falls to zero. One
that was killed says nothing more, and stops counting after `SILENT_SECONDS`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from agentworld.pool.results import Drain, GatewayState, GatewayWorker

REPORT_SECONDS = 4.0
"""How often a worker says that it lives."""
SILENT_SECONDS = 15.0
"""After so long without a word a worker counts as dead."""
KEPT_SECONDS = 3600.0
"""For so long the pool keeps the last word of a worker that died."""
LOOK_SECONDS = 0.05
"""Between two looks of one who waits."""


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
