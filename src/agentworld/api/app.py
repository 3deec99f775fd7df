"""The whole server as one ASGI application: LLM routes by the gateway, everything else by the control API."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Coroutine, MutableMapping
from typing import TYPE_CHECKING, Any

import msgspec
import structlog
from litestar import Litestar
from litestar.datastructures import State

from agentworld.api import (
    batches,
    credit,
    curation,
    dataset_files,
    datasets,
    docs,
    evaluations,
    events,
    facets,
    feedback,
    groups,
    health,
    judgements,
    keeping,
    keys,
    media,
    merging,
    methods,
    metrics,
    otlp_replies,
    page,
    pieces,
    previews,
    review_counts,
    runs,
    server_status,
    sign_in,
    signals,
    traces,
    trajectories,
    usage,
)
from agentworld.api.access import CALLER
from agentworld.api.at_end import ended
from agentworld.api.faults import respond
from agentworld.api.long_work import LongWork
from agentworld.api.metrics import counted
from agentworld.api.origins import OriginGuard
from agentworld.api.parameters import check_parameters
from agentworld.api.replies import ExactResponse
from agentworld.api.reward_status import RewardStatus
from agentworld.api.scopes import needed
from agentworld.api.sweeps import Sweeps
from agentworld.config import ServeSettings
from agentworld.dialects.dialect import dialect_at
from agentworld.errors import (
    AgentWorldError,
    NotFoundError,
    RequestTimeoutError,
    UnauthorizedError,
)
from agentworld.gateway.access import GRANT, Access, check_scopes
from agentworld.gateway.http import broken_off, too_slow
from agentworld.gateway.metrics import TALLIES
from agentworld.gateway.readiness import PoolProbe
from agentworld.gateway.routes import METHODS, find_route
from agentworld.http_server.lifespan import ASGI, Lifespan, Receive, Scope, Send
from agentworld.ingest.spans.recent import Recent
from agentworld.pool.protocol import Pool

if TYPE_CHECKING:
    from agentworld.gateway.app import Gateway

LLM_PREFIXES = ("/v1/", "/t/")
# The gateway reports on its engines too, so where there is one its own probes answer.
GATEWAY_PROBES = ("/healthz", "/readyz")
_BODIES = ("POST", "PUT", "PATCH")
# What a browser must not take for anything but what its type says, such as JSON with stored text for a page.
NO_SNIFFING = (b"x-content-type-options", b"nosniff")

logger = structlog.get_logger("agentworld.api")

ROUTES: list[Any] = [
    *trajectories.ROUTES,
    *facets.ROUTES,
    *previews.ROUTES,
    *review_counts.ROUTES,
    *pieces.ROUTES,
    *credit.ROUTES,
    *signals.ROUTES,
    *feedback.ROUTES,
    *groups.ROUTES,
    *batches.ROUTES,
    *curation.ROUTES,
    *evaluations.ROUTES,
    *datasets.ROUTES,
    *dataset_files.ROUTES,
    *judgements.ROUTES,
    *runs.ROUTES,
    *usage.ROUTES,
    *methods.ROUTES,
    *server_status.ROUTES,
    *events.ROUTES,
    *media.ROUTES,
    *merging.ROUTES,
    *traces.ROUTES,
    *keeping.ROUTES,
    *keys.ROUTES,
    *health.ROUTES,
    *metrics.ROUTES,
    *docs.ROUTES,
    *sign_in.ROUTES,
    *page.ROUTES,
]


def create_control(
    settings: ServeSettings,
    pool: Pool,
    access: Access,
    rewards: RewardStatus | None = None,
    gateway: Gateway | None = None,
) -> Litestar:
    """The control API alone. `access` is told of each key that was made here, and checks those of sign-ins. `gateway`:
    the one beside it, of whose engines it tells.
    """
    closing = asyncio.Event()
    return Litestar(
        ROUTES,
        response_class=ExactResponse,
        state=State(
            {
                "settings": settings,
                "pool": pool,
                "closing": closing,
                "sweeps": Sweeps(closing),
                "long_work": LongWork(closing),
                "routes": ROUTES,
                "probe": PoolProbe(pool),
                "access": access,
                "rewards": rewards,
                "gateway": gateway,
                "traces_came": False,
                "traces_recent": Recent(),
            }
        ),
        exception_handlers={Exception: respond},
        before_request=check_parameters,
        openapi_config=None,
        request_max_body_size=settings.max_body_bytes,
        lifespan=[traces.closing],
        logging_config=None,
    )


class Server:
    """Routes by path; starts and stops both applications."""

    def __init__(
        self, control: Litestar, gateway: Gateway | None, guard: OriginGuard, access: Access, body_timeout: float
    ) -> None:
        self._control: ASGI = control
        self._gateway = gateway
        self._guard = guard
        self._access = access
        self._body_timeout = body_timeout
        self._closing: asyncio.Event = control.state.closing
        apps: tuple[ASGI | None, ...] = (gateway, control)
        self._lifespans = [Lifespan(app) for app in apps if app is not None]

    def end_streams(self) -> None:
        """End the streams of events, which would otherwise hold up the shutdown."""
        self._closing.set()

    def end(self, grace: float) -> None:
        """End streams of events, and calls of models that still run after `grace` seconds. Call in the event loop."""
        self.end_streams()
        if self._gateway is not None:
            self._gateway.end(grace)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Coroutine[Any, Any, None]:
        """One connection. No coroutine of its own, as each is gone through whenever what it waits for has come."""
        if scope["type"] == "lifespan":
            return self._live(receive, send)
        if scope["type"] != "http":
            return _nothing()
        if _is_llm(scope["path"]) or self._is_probe(scope):
            return counted("llm", self._llm, scope, receive, send)
        return counted("control", self._api, scope, receive, send)

    def _is_probe(self, scope: Scope) -> bool:
        path = scope["path"]
        return self._gateway is not None and (path in GATEWAY_PROBES or (path == "/" and scope["method"] == "HEAD"))

    async def _admit(self, scope: Scope, send: Send, *, llm: bool) -> bool:
        """Whether the request may go on; it has been answered where not. Its grant goes with it."""
        try:
            fault = self._guard.fault(scope)
            if fault is not None:
                raise fault
            scopes = needed(scope["method"], scope["path"], llm=llm)
            if scopes is None:
                grant = await self._access.open_grant(scope.get("headers") or (), browser=not llm)
            else:
                grant = await self._access.grant(scope.get("headers") or (), browser=not llm)
                check_scopes(grant, scopes, f"{scope['method'][:20]} {scope['path'][:200]}")
        except AgentWorldError as error:
            if llm:  # The gateway, which tells of the others, does not see it.
                facts = {"method": scope["method"][:20], "path": scope["path"][:200], "status": error.status}
                logger.info("request", **facts, code=error.code)
            await _reply(scope, send, error)
            return False
        scope[GRANT] = grant
        CALLER.set(grant)
        return True

    async def _llm(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not await self._admit(scope, send, llm=True):
            return
        if self._gateway is None:
            await _reply(
                scope,
                send,
                NotFoundError(
                    f"This server has no models, so there is no {scope['path'][:200]}",
                    hint="Start the gateway with `agentworld serve --upstream URL --model NAME` on the same pool",
                ),
            )
        elif scope["method"] == "OPTIONS":
            await _allow(scope, send)
        else:
            await self._gateway(scope, receive, send)

    async def _api(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not await self._admit(scope, send, llm=False):
            return
        begun = False

        async def watch(message: MutableMapping[str, Any]) -> None:
            nonlocal begun
            if not begun and NO_SNIFFING not in message["headers"]:
                message["headers"] = [*message["headers"], NO_SNIFFING]
            begun = True
            await send(message)

        try:
            whole = _whole(receive, self._body_timeout) if scope["method"] in _BODIES else receive
            try:
                await self._control(scope, whole, watch)
            finally:
                await ended(scope)
        except Exception as error:
            # The framework fails outside its handlers on some requests that it cannot read.
            if begun:
                raise
            places = "".join(traceback.format_tb(error.__traceback__))
            logger.error("request failed", route=scope["path"][:200], error=type(error).__name__, places=places)
            await _reply(
                scope, send, AgentWorldError("The server failed on this request", hint="Its log has the details")
            )

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
        TALLIES.flush()  # What an ended worker counted stays.
        await send({"type": "lifespan.shutdown.complete"})


async def _nothing() -> None:
    """What is neither a request nor the server's life is not served."""


def _is_llm(path: str) -> bool:
    if path == otlp_replies.PATH:
        return False
    return path.startswith(LLM_PREFIXES) or path in ("/v1", "/t")


def _whole(receive: Receive, seconds: float) -> Receive:
    """`receive` that tells of a body that breaks off or takes too long; handlers would otherwise be told of a fault of
    ours.
    """
    complete = False
    deadline = time.monotonic() + seconds

    async def receive_whole() -> MutableMapping[str, Any]:
        nonlocal complete
        if complete:
            return await receive()
        try:
            message = await asyncio.wait_for(receive(), max(deadline - time.monotonic(), 0.001))
        except TimeoutError:
            raise too_slow(seconds) from None
        if message["type"] == "http.request":
            complete = not message.get("more_body", False)
        else:
            raise broken_off()
        return message

    return receive_whole


async def _allow(scope: Scope, send: Send) -> None:
    """Answer OPTIONS: which methods there are, and no permission for pages of other sites."""
    try:
        methods = ", ".join((*METHODS[find_route("", scope["path"], any_method=True).name], "OPTIONS"))
    except AgentWorldError as error:
        await _reply(scope, send, error)
        return
    await send({"type": "http.response.start", "status": 204, "headers": [(b"allow", methods.encode())]})
    await send({"type": "http.response.body", "body": b""})


async def _reply(scope: Scope, send: Send, error: AgentWorldError) -> None:
    """Answer with an error; on LLM routes also with the fields that clients of OpenAI and Anthropic look for."""
    if scope["path"] == otlp_replies.PATH:
        await _reply_exporter(scope, send, error)
        return
    body = error.to_dict()
    if _is_llm(scope["path"]):
        theirs = dialect_at(scope["path"]).error_body(error)
        body = {**theirs, "error": {**theirs["error"], **body["error"]}}
    content = b"" if scope["method"] == "HEAD" else msgspec.json.encode(body)
    length = (b"content-length", str(len(content)).encode())
    headers = [(b"content-type", b"application/json"), length, NO_SNIFFING]
    if isinstance(error, UnauthorizedError):
        headers.append((b"www-authenticate", b"Bearer"))
    if error.status == RequestTimeoutError.status:
        headers.append((b"connection", b"close"))
    start: MutableMapping[str, Any] = {"type": "http.response.start", "status": error.status, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": content})


async def _reply_exporter(scope: Scope, send: Send, error: AgentWorldError) -> None:
    """Answer an exporter of spans with an error."""
    said = dict(scope.get("headers") or ()).get(b"content-type", b"").decode("latin-1")
    status, headers, body = otlp_replies.failure(otlp_replies.kind_of(said), error)
    headers |= {"content-length": str(len(body))} | ({"www-authenticate": "Bearer"} if status == 401 else {})
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": [*encoded, NO_SNIFFING]})
    await send({"type": "http.response.body", "body": body})


def create_app(settings: ServeSettings, pool: Pool, rewards: str | None = None) -> Server:
    """The server on an open pool. The caller closes the pool after the shutdown. `rewards`: the follower's name of the
    process beside it that runs evaluators.
    """
    status = RewardStatus(pool, rewards) if rewards is not None else None
    gateway: Gateway | None = None
    if settings.models:
        from agentworld.gateway.app import create_gateway

        gateway = create_gateway(settings, pool)
        gateway.beside = {"rewards": status.look} if status is not None else {}
    access = Access(pool, required=settings.keys_required)
    return Server(
        create_control(settings, pool, access, status, gateway),
        gateway,
        OriginGuard(settings),
        access,
        settings.body_timeout,
    )
