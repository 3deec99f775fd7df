"""Liveness and readiness of a server without models; a gateway has its own."""

from __future__ import annotations

import asyncio

from litestar import get
from litestar.datastructures import State

from agentworld.errors import EndingError


@get("/healthz")
async def healthz() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@get("/readyz")
async def readyz(state: State) -> dict[str, str]:
    """The pool can be written; an error where it cannot, or where the server is shutting down."""
    if state.closing.is_set():
        raise EndingError("the server is shutting down")
    await state.probe.check()
    if state.rewards is None:
        return {"status": "ready"}
    return {"status": "ready", "rewards": await asyncio.to_thread(state.rewards.line)}


ROUTES = [healthz, readyz]
