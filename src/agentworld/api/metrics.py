"""Counters as Prometheus reads them: requests of this server, records of its pool."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import msgspec
from litestar import Response, get
from litestar.datastructures import State
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from agentworld.api.lifespan import ASGI, Receive, Scope, Send
from agentworld.pool.protocol import Pool, PoolStats
from agentworld.pool.stats import ChannelStats, ConsumerStats, PolicyStats

# Where this is set, before the first import of prometheus_client, several workers count together in its files.
SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})

_OWN = CollectorRegistry()
REQUESTS = Counter(
    "agentworld_requests", "Requests by surface (llm, control), method and status", ["surface", "method", "status"],
    registry=_OWN,
)  # fmt: skip
SECONDS = Histogram(
    "agentworld_request_seconds", "Seconds from a request to the end of its reply", ["surface"], registry=_OWN,
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600),
)  # fmt: skip


async def counted(surface: str, app: ASGI, scope: Scope, receive: Receive, send: Send) -> None:
    """Serve one request by `app` and count it; status 0 where it ended without a reply."""
    begun = time.perf_counter()
    status = 0

    async def watch(message: Any) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        await send(message)

    try:
        await app(scope, receive, watch)
    finally:
        # Methods are a client's to choose; the labels must not be.
        method = scope["method"] if scope["method"] in METHODS else "other"
        REQUESTS.labels(surface, method, str(status)).inc()
        SECONDS.labels(surface).observe(time.perf_counter() - begun)


_LABELS = {"trajectories": "status", "readiness": "readiness", "groups": "state", "batches": "state"}
_FIGURES: dict[str, tuple[str, type[msgspec.Struct]]] = {
    "channels": ("channel", ChannelStats),
    "consumers": ("consumer", ConsumerStats),
    "policies": ("policy", PolicyStats),
}


class PoolCollector:
    """The pool's counters as gauges. They live in the pool, so every worker and replica tells the same numbers."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def collect(self) -> Any:
        """One gauge for each counter; figures of channels, consumers and policies are told apart by a label."""
        stats = self._pool.stats()
        for name in PoolStats.__struct_fields__:
            value = getattr(stats, name)
            if name in _FIGURES:
                yield from _figures(value, *_FIGURES[name])
            elif isinstance(value, dict):
                label = _LABELS.get(name, "kind")
                family = GaugeMetricFamily(f"agentworld_pool_{name}", f"{name} by {label}", labels=[label])
                for key, count in value.items():
                    family.add_metric([key], count)
                yield family
            else:
                yield GaugeMetricFamily(f"agentworld_pool_{name}", name.replace("_", " "), value=value)


def _figures(records: dict[str, msgspec.Struct], label: str, kind: type[msgspec.Struct]) -> Iterator[GaugeMetricFamily]:
    """A gauge for each number of the records, told apart by the records' names."""
    for figure in kind.__struct_fields__:
        family = GaugeMetricFamily(
            f"agentworld_pool_{label}_{figure}", f"{figure} by {label}".replace("_", " "), labels=[label]
        )
        for key, record in records.items():
            if isinstance(number := getattr(record, figure), int):
                family.add_metric([key], number)
        if family.samples:
            yield family


@get("/metrics", sync_to_thread=True, media_type="text/plain")
def metrics(state: State) -> Response[bytes]:
    """Metrics as Prometheus reads them; requests of all workers together."""
    pool = CollectorRegistry()
    pool.register(PoolCollector(state.pool))
    requests = _OWN
    if os.environ.get(SHARED_FOLDER):
        requests = CollectorRegistry()
        MultiProcessCollector(requests)  # type: ignore[no-untyped-call]
    # The framework adds the charset itself.
    kind = CONTENT_TYPE_LATEST.replace("; charset=utf-8", "")
    return Response(generate_latest(requests) + generate_latest(pool), media_type=kind)


ROUTES = [metrics]
