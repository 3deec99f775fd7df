"""Counters as Prometheus reads them: requests and calls of this server's workers, records of its pool."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import time
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from litestar import Response, get
from litestar.datastructures import State
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from agentworld.api.access import reach
from agentworld.gateway.metrics import IN_FLIGHT, REGISTRY, REQUESTS, SECONDS, TALLIES
from agentworld.gateway.routes import route_name
from agentworld.http_server.exchange import Exchange
from agentworld.http_server.lifespan import ASGI, Receive, Scope, Send
from agentworld.pool.protocol import Pool, PoolStats
from agentworld.pool.stats import ChannelStats, ConsumerStats, PolicyStats

# Where this is set, before the first import of prometheus_client, several workers count together in its files.
SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
PROBES = ("/healthz", "/readyz")
# The library looks a counter up by its labels anew each time, under a lock.
_in_flight, _seconds = functools.cache(IN_FLIGHT.labels), functools.cache(SECONDS.labels)
_requests = functools.lru_cache(1024)(REQUESTS.labels)
_LIVE = re.compile(r"gauge_live[a-z]*_(\d+)\.db")


class _Watched:
    """A way to answer, and the status that goes through it."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0

    def send(self, message: Any) -> Awaitable[None]:
        """As ASGI has it."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
        return self._send(message)


async def counted(surface: str, app: ASGI, scope: Scope, receive: Receive, send: Send) -> None:
    """Serve one request by `app` and count it; status 0 where it ended without a reply."""
    begun = time.perf_counter()
    exchange: Exchange | _Watched | None = getattr(send, "__self__", None)
    if type(exchange) is not Exchange:  # Under another server.
        exchange = _Watched(send)
        send = exchange.send
    in_flight = _in_flight(surface)
    TALLIES.count(in_flight, 1)
    try:
        await app(scope, receive, send)
    finally:
        TALLIES.count(in_flight, -1)
        # Methods and paths are a client's to choose; the labels must not be.
        method = scope["method"] if scope["method"] in METHODS else "other"
        path = scope["path"]
        route = path if path in PROBES else route_name(path) if surface == "llm" else scope.get("path_template")
        TALLIES.count(_requests(surface, route or "other", method, str(exchange.status)))
        TALLIES.observe(_seconds(surface), time.perf_counter() - begun)


def forget_dead(folder: str) -> None:
    """Take away what workers that ended say of now; what they counted stays."""
    for file in Path(folder).glob("gauge_live*.db"):
        found = _LIVE.fullmatch(file.name)
        if found is not None and not _lives(int(found[1])):
            with contextlib.suppress(FileNotFoundError):
                file.unlink()


class _Workers(MultiProcessCollector):
    """What all workers counted. A worker makes its files with its first request of a kind, and for a moment they are
    empty, which the library takes for damage.
    """

    def __init__(self, folder: str) -> None:
        super().__init__(None, folder)  # type: ignore[no-untyped-call]
        self._folder = folder

    def collect(self) -> Any:
        """The counters of all files that have begun."""
        files = [str(file) for file in Path(self._folder).glob("*.db") if _begun(file)]
        return self.merge(files, accumulate=True)  # type: ignore[no-untyped-call]


def _begun(file: Path) -> bool:
    try:
        return file.stat().st_size > 0
    except FileNotFoundError:
        return False


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


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
    """Metrics as Prometheus reads them; those of all workers of this server together."""
    pool = CollectorRegistry()
    pool.register(PoolCollector(reach(state)))
    if state.rewards is not None:
        pool.register(state.rewards)
    requests: CollectorRegistry = REGISTRY
    if folder := os.environ.get(SHARED_FOLDER):
        TALLIES.flush()
        forget_dead(folder)
        requests = CollectorRegistry()
        requests.register(_Workers(folder))
    # The framework adds the charset itself.
    kind = CONTENT_TYPE_LATEST.replace("; charset=utf-8", "")
    return Response(generate_latest(requests) + generate_latest(pool), media_type=kind)


ROUTES = [metrics]
