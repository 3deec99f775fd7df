"""The whole server as one ASGI application: LLM routes by the gateway, everything else by the control API."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import msgspec
from litestar import Litestar, Request
from litestar.datastructures import State

from agentworld.api import batches, docs, events, health, metrics, signals, trajectories
from agentworld.api.faults import respond
from agentworld.api.lifespan import ASGI, Lifespan, Receive, Scope, Send
from agentworld.api.metrics import counted
from agentworld.config import ServeSettings
from agentworld.errors import InvalidRequestError, NotFoundError
from agentworld.pool.protocol import Pool

LLM_PREFIXES = ("/v1/", "/t/")
# The gateway reports on its engines too, so where there is one its own probes answer.
GATEWAY_PROBES = ("/healthz", "/readyz")
_NOT_PARAMETERS = {"state", "request", "body"}

ROUTES: list[Any] = [
    *trajectories.ROUTES,
    *signals.ROUTES,
    *batches.ROUTES,
    *events.ROUTES,
    *health.ROUTES,
    *metrics.ROUTES,
    *docs.ROUTES,
]


async def refuse_unknown_parameters(request: Request[Any, Any, Any]) -> None:
    """A misspelt filter would change what a listing means, so it is an error."""
    known = set(request.route_handler.parsed_fn_signature.parameters) - _NOT_PARAMETERS
    for name in request.query_params:
        if name not in known:
            raise InvalidRequestError(
                f"There is no parameter {name!r} here",
                path=f"?{name}",
                hint=f"Known: {', '.join(sorted(known))}" if known else "This route takes none",
            )


def create_control(settings: ServeSettings, pool: Pool) -> Litestar:
    """The control API alone."""
    closing = asyncio.Event()
    return Litestar(
        ROUTES,
        state=State({"settings": settings, "pool": pool, "closing": closing, "routes": ROUTES}),
        exception_handlers={Exception: respond},
        before_request=refuse_unknown_parameters,
        openapi_config=None,
        request_max_body_size=settings.max_body_bytes,
        logging_config=None,
    )


class Server:
    """Routes by path; starts and stops both applications."""

    def __init__(self, control: Litestar, gateway: ASGI | None) -> None:
        self._control: ASGI = control
        self._gateway = gateway
        self._closing: asyncio.Event = control.state.closing
        self._lifespans = [Lifespan(app) for app in (gateway, control) if app is not None]

    def end_streams(self) -> None:
        """End the streams of events, which would otherwise hold up the shutdown."""
        self._closing.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        path = scope["path"]
        is_llm = path.startswith(LLM_PREFIXES) or path in ("/v1", "/t")
        is_probe = path in GATEWAY_PROBES or (path == "/" and scope.get("method") == "HEAD")
        if self._gateway is not None and (is_llm or is_probe):
            await counted("llm", self._gateway, scope, receive, send)
        elif is_llm and scope["type"] == "http":
            await _no_models(path, send)
        elif scope["type"] == "http":
            await counted("control", self._control, scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        started: list[Lifespan] = []
        try:
            for lifespan in self._lifespans:
                await lifespan.startup()
                started.append(lifespan)
        except Exception as error:
            for lifespan in reversed(started):
                await lifespan.shutdown()
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            raise
        await send({"type": "lifespan.startup.complete"})
        await receive()
        for lifespan in reversed(started):
            await lifespan.shutdown()
        await send({"type": "lifespan.shutdown.complete"})


async def _no_models(path: str, send: Send) -> None:
    error = NotFoundError(
        f"This server has no models, so there is no {path}",
        hint="Start the gateway with `agentworld serve --upstream URL --model NAME` on the same pool",
    )
    # Both the fields of the control API and those that clients of OpenAI and Anthropic look for.
    fields = {**error.to_dict()["error"], "type": "not_found_error", "param": None}
    body = msgspec.json.encode({"type": "error", "error": fields})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    start: MutableMapping[str, Any] = {"type": "http.response.start", "status": error.status, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": body})


def create_app(settings: ServeSettings, pool: Pool) -> Server:
    """The server on an open pool. The caller closes the pool after the shutdown."""
    gateway: ASGI | None = None
    if settings.models:
        from agentworld.gateway.app import create_gateway

        gateway = create_gateway(settings, pool)
    return Server(create_control(settings, pool), gateway)
