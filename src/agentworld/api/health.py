"""Liveness, readiness and metrics of a server."""

from __future__ import annotations

from typing import Any

from litestar import Response, get
from litestar.datastructures import State
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from agentworld.pool.protocol import Pool, PoolStats


@get("/healthz", media_type="application/json")
async def healthz() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@get("/readyz", sync_to_thread=True)
def readyz(state: State) -> dict[str, str]:
    """The pool can be read; an error where it cannot."""
    state.pool.gateway_state()
    return {"status": "ready"}


class PoolCollector:
    """The pool's counters as gauges. They live in the pool, so every worker and replica tells the same numbers."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def collect(self) -> Any:
        """One gauge for each counter."""
        stats = self._pool.stats()
        for name in PoolStats.__struct_fields__:
            value = getattr(stats, name)
            if isinstance(value, dict):
                label = {"trajectories": "status", "batches": "state"}.get(name, "kind")
                family = GaugeMetricFamily(f"agentworld_pool_{name}", f"{name} by {label}", labels=[label])
                for key, count in value.items():
                    family.add_metric([key], count)
            else:
                family = GaugeMetricFamily(f"agentworld_pool_{name}", name.replace("_", " "), value=value)
            yield family


@get("/metrics", sync_to_thread=True, media_type="text/plain")
def metrics(state: State) -> Response[bytes]:
    """Metrics as Prometheus reads them."""
    registry = CollectorRegistry()
    registry.register(PoolCollector(state.pool))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST.replace("; charset=utf-8", ""))


ROUTES = [healthz, readyz, metrics]
