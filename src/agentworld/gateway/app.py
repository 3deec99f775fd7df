"""The gateway as one ASGI app: LLM routes, liveness and readiness.

A request goes through three small steps: admit (identity, model, prompt), answer (engine, stream), commit (pool).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import traceback
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import structlog

from agentworld.capture.recorder import Recorder
from agentworld.capture.sessions import Sessions
from agentworld.config import ServeSettings
from agentworld.dialects import messages, responses
from agentworld.dialects.dialect import BY_ROUTE, RESPONSES, Dialect, dialect_at
from agentworld.dialects.exchange import Request
from agentworld.dialects.fields import decode_object
from agentworld.errors import AgentWorldError, EndingError
from agentworld.gateway import metrics
from agentworld.gateway.access import check_granted, check_group
from agentworld.gateway.admit import Admission, Admitted
from agentworld.gateway.answer import Answer
from agentworld.gateway.background import Background
from agentworld.gateway.clock import Clock, MonotonicClock
from agentworld.gateway.heartbeat import Heartbeat
from agentworld.gateway.http import ClientGoneError, Http, Receive, Scope, Send
from agentworld.gateway.identity import read_identity
from agentworld.gateway.idle import IdleTrajectories
from agentworld.gateway.large import INLINE_BYTES, apart
from agentworld.gateway.log_context import about
from agentworld.gateway.models import Models
from agentworld.gateway.overrides import Overrides
from agentworld.gateway.past import joined, load_past, size_of
from agentworld.gateway.readiness import PoolProbe, Shared
from agentworld.gateway.refused import Asked, Refusals
from agentworld.gateway.retries import Retries
from agentworld.gateway.routes import Route, find_route
from agentworld.gateway.running import RunningCalls
from agentworld.gateway.state import SharedState
from agentworld.gateway.stored import StoredResponses
from agentworld.pool.protocol import Pool
from agentworld.timing_wheel import TimingWheel

log = structlog.get_logger("agentworld.gateway")
_lines = logging.getLogger("agentworld.gateway")
PAUSE_WAIT_SECONDS = 20.0
RETRY_AFTER_SECONDS = 5
LAST_WORD_SECONDS = 0.5
"""So long the end of the server waits for a client to take the error."""
FORWARDED = ("anthropic-version", "anthropic-beta")
"""Headers that go on to an engine that speaks the caller's own API."""


class Gateway:
    """The ASGI app. The pool belongs to the caller, who closes it after the app."""

    def __init__(
        self,
        settings: ServeSettings,
        pool: Pool,
        pause_wait: float = PAUSE_WAIT_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        clock = clock or MonotonicClock()
        self.settings = settings
        self.pool = pool
        self.models = Models(settings, clock)
        self.sessions = Sessions(pool)
        self.state = SharedState(pool, pause_wait, clock)
        self.recorder = Recorder(pool, self.sessions)
        self.stored = StoredResponses(pool, self.models)
        self.retries = Retries()
        overrides = Overrides(settings.channels)
        self.admission = Admission(self.models, self.sessions, self.retries, self.state, overrides, pool)
        self.refusals = Refusals(pool)
        self.heartbeat = Heartbeat(pool, self.state)
        self.running_calls = RunningCalls(pool, settings.idle_seconds)
        self.probe = PoolProbe(pool)
        self.conditions = Shared(self._look)
        self.background = Background()
        self.beside: dict[str, Callable[[], dict[str, Any]]] = {}
        """What further runs beside the server, by name, and says of itself in /readyz; called in a thread."""
        self._engine_metrics = metrics.EngineMetrics()
        self._calls: dict[asyncio.Task[Any], Http] = {}
        self._wheel = TimingWheel()
        self.in_flight = 0
        self.ending = False
        """From the signal that ends the server on."""

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Coroutine[Any, Any, None]:
        """Serve one ASGI connection."""
        if scope["type"] == "http":
            return self._http(Http(scope, receive, send, self.settings.write_timeout, self._wheel))
        return self._lifespan(receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self._start()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _start(self) -> None:
        """Begin what goes on beside the calls. The worker makes itself known before it takes one."""
        await self.heartbeat.start()
        idle = IdleTrajectories(
            self.pool, self.settings.idle_seconds, self.heartbeat.worker, running=self.running_calls
        )
        self.background.begin("probes", self.models.probe)
        self.background.begin("engine_counters", self._count_engines)
        self.background.begin("idle", idle.run)
        self.background.begin("running_calls", self.running_calls.run)

    async def _count_engines(self) -> None:
        """Show the engines' counters to whoever reads the metrics, until cancelled."""
        while True:
            self._engine_metrics.sync(self.models.figures())
            await asyncio.sleep(metrics.SYNC_SECONDS)

    def end(self, grace: float) -> None:
        """Take no further calls, and break off those that still run after `grace` seconds; what they have of their
        replies goes on record. Call in the event loop.
        """
        self.ending = True
        asyncio.get_running_loop().call_later(grace, self._break_off)

    def _break_off(self) -> None:
        for task, http in self._calls.items():
            log.warning("call_broken_off", path=http.path[:200], **http.facts)
            task.cancel()

    async def close(self) -> None:
        """End what goes on beside the calls, and let go of connections to engines."""
        begun = self.background.running
        await self.background.end()
        await self.conditions.settle()
        await self.state.settle()
        await self.probe.settle()
        self._engine_metrics.sync(self.models.figures())
        if begun:
            await self.heartbeat.end()
        await self.models.close()

    async def _http(self, http: Http) -> None:
        begun = time.monotonic()
        about()  # A server may serve the requests of a connection one after the other in one context.
        self.in_flight += 1
        try:
            await self._route(http)
        except asyncio.CancelledError:
            if not self.ending:
                raise
            http.write_timeout = min(http.write_timeout, LAST_WORD_SECONDS)
            with contextlib.suppress(ClientGoneError):
                await self._error(http, _ending())
        except ClientGoneError:
            http.status = http.status or ClientGoneError.status
        except AgentWorldError as error:
            await self._error(http, error)
        except Exception as error:
            # Places and the type alone: messages and locals can hold what users wrote.
            places = "".join(traceback.format_tb(error.__traceback__))
            log.error("internal_error", path=http.path[:200], error=type(error).__name__, places=places)
            await self._error(http, AgentWorldError("the gateway failed to handle this request; its log says more"))
        finally:
            self.in_flight -= 1
            if http.status >= 400 or _lines.isEnabledFor(logging.DEBUG):  # Else the line is made to be dropped.
                milliseconds = round((time.monotonic() - begun) * 1000, 2)
                facts = {"method": http.method, "path": http.path[:200], "status": http.status, "ms": milliseconds}
                note = log.info if http.status >= 400 else log.debug
                note("request", **facts, **http.facts)

    async def _error(self, http: Http, error: AgentWorldError) -> None:
        http.facts = {**http.facts, "code": error.code}
        dialect = dialect_at(http.path)
        if http.started:
            await http.chunk(dialect.error_event(error), last=True)
            return
        if error.status in (429, 503):
            http.add_header("retry-after", str(getattr(error, "retry_after", RETRY_AFTER_SECONDS)))
        await http.reply(error.status, dialect.error_body(error))

    async def _route(self, http: Http) -> None:
        if http.path == "/healthz":
            await http.reply(200, {"status": "ok"})
        elif http.path == "/readyz":
            await self._readyz(http)
        else:
            route = find_route(http.method, http.path)
            if route.name == "/":
                await http.reply(200, {"status": "ok"})
                return
            check_granted(http.grant)
            if route.name == "/v1/models":
                await http.reply(200, self.models.listing())
            elif route.name == "/v1/messages/count_tokens":
                await self._count(http)
            elif route.name == "/v1/responses/input_tokens":
                await self._count_input(http)
            elif route.item is not None:
                read = self.stored.input if route.name.endswith("/input_items") else self.stored.body
                await http.reply(200, await read(route.item, http.query, read_identity(http, route), http.grant))
            elif self.ending:
                http.add_header("connection", "close")
                raise _ending()
            else:
                await self._call(http, route)

    async def _body(self, http: Http) -> bytes:
        return await http.body(self.settings.max_body_bytes, self.settings.body_timeout)

    async def _count(self, http: Http) -> None:
        body = await self._body(http)
        decoded = await apart(len(body), decode_object, body)
        request = with_raw(await apart(len(body), messages.parse, decoded, counting=True), decoded, http)
        await http.reply(200, {"input_tokens": await self.models.find(request.model).count(request)})

    async def _count_input(self, http: Http) -> None:
        body = await self._body(http)
        decoded = await apart(len(body), decode_object, body)
        past = await load_past(self.pool, await apart(len(body), responses.wanted, decoded), http.grant)
        request = await apart(len(body) + size_of(past), responses.parse, decoded, past)
        count = await self.models.find(request.model).count(request)
        await http.reply(200, {"object": "response.input_tokens", "input_tokens": count})

    async def _call(self, http: Http, route: Route) -> None:
        """A call, which the end of the server waits for."""
        task = asyncio.current_task()
        assert task is not None
        self._calls[task] = http
        if route.trajectory is not None:
            about(trajectory=route.trajectory)
        try:
            dialect = BY_ROUTE[route.name]
            asked = Asked(route=route, dialect=dialect.name)
            try:
                admitted = await self._admit(http, dialect, asked)
            except Exception as error:
                await self.refusals.record(http, asked, error)
                raise
            await self._answer(http, dialect, admitted)
        finally:
            del self._calls[task]

    def _answer(self, http: Http, dialect: Dialect, admitted: Admitted) -> Coroutine[Any, Any, None]:
        call = admitted.call
        about(trajectory=call.trajectory_id, exchange=call.exchange_id)
        http.add_header("x-agentworld-trajectory", call.trajectory_id)
        http.facts = {
            "trajectory": call.trajectory_id,
            "model": call.model,
            "tokens": call.source,
            "stream": call.request.stream,
        }
        answer = Answer(admitted, dialect, self.recorder, self.retries, self.state, http)
        return self.running_calls.during(call.trajectory_id, admitted.session.last_at, answer.send())

    async def _admit(self, http: Http, dialect: Dialect, asked: Asked) -> Admitted:
        """Read the call and place it. `asked`: filled in on the way."""
        route = asked.route
        body = asked.body = await self._body(http)
        size = len(body)
        quick = dialect.quick(body) if dialect.quick is not None and size <= INLINE_BYTES else None
        if quick is not None:
            request, asked.decoded = quick
            identity = asked.identity = read_identity(http, route, asked.decoded)
        else:
            decoded = asked.decoded = await apart(size, decode_object, body)
            identity = asked.identity = read_identity(http, route, decoded)
            if dialect is RESPONSES:
                past = await load_past(self.pool, await apart(size, responses.wanted, decoded), http.grant)
                size += size_of(past)
                request = await apart(size, responses.parse, decoded, past)
                identity = asked.identity = await joined(self.pool, identity, decoded, past)
            else:
                request = with_raw(await apart(size, dialect.parse, decoded), decoded, http)
        if identity.group_id is not None:
            await check_group(self.pool, http.grant, identity.group_id)
        if identity.trajectory_id is not None and route.trajectory is None:
            about(trajectory=identity.trajectory_id)
        return await self.admission.admit(request, identity, body, size)

    async def _look(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """How the pool and the models are."""
        pool: dict[str, Any] = {"ready": True}
        try:
            state = await self.state.read(0.0)
            pool["paused"] = state.paused
            await self.probe.check()
        except AgentWorldError as error:
            pool = {"ready": False, "error": error.one_line()}
        models = await asyncio.gather(*(model.status() for model in self.models.by_name.values()))
        return pool, list(models)

    async def _readyz(self, http: Http) -> None:
        """Ready where the pool can be written and each model has an engine that answers; the body says what is not. A
        pause is no fault, as calls wait for its end, and neither is what fails beside the calls, but it is told.
        """
        pool, models = await self.conditions.get()
        ready = bool(pool["ready"]) and all(model["ready"] for model in models) and not self.ending
        said: dict[str, Any] = {"ready": ready}
        if self.ending:
            said["ending"] = True
        if http.grant.allows(("read",)):  # Names and addresses are not for everybody.
            said |= {"pool": pool, "models": models}
            failing = list(self.background.failures)
            if self.heartbeat.error is not None:
                failing.append({"task": "heartbeat", "error": self.heartbeat.error, "seconds_ago": 0.0})
            if failing:
                said["background"] = failing
            for name, look in self.beside.items():
                said[name] = await asyncio.to_thread(look)
        await http.reply(200 if ready else 503, said)


def _ending() -> EndingError:
    return EndingError("the server is shutting down", hint="Send the request again; another one may answer")


def with_raw(request: Request, body: dict[str, Any], http: Http) -> Request:
    """The request with what an engine gets that speaks the caller's own API."""
    headers = {}
    if request.dialect == messages.DIALECT:
        headers = {name: value for name in FORWARDED if (value := http.header(name)) is not None}
    return msgspec.structs.replace(request, raw=body, forwarded=headers)


def create_gateway(
    settings: ServeSettings, pool: Pool, *, pause_wait: float = PAUSE_WAIT_SECONDS, clock: Clock | None = None
) -> Gateway:
    """The gateway app for these settings. ConfigError where a model's settings do not fit together."""
    return Gateway(settings, pool, pause_wait, clock)
