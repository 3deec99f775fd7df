"""Liveness and readiness of a server without models; a gateway has its own."""

from __future__ import annotations

from litestar import get
from litestar.datastructures import State


@get("/healthz")
async def healthz() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@get("/readyz", sync_to_thread=True)
def readyz(state: State) -> dict[str, str]:
    """The pool can be read; an error where it cannot."""
    state.pool.gateway_state()
    return {"status": "ready"}


ROUTES = [healthz, readyz]
