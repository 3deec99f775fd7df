"""Answers an admitted call: asks the engine, records the exchange, and only then says that it is done."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import structlog

from agentworld.capture.collect import Collector
from agentworld.capture.recorder import Recorder
from agentworld.dialects.dialect import Dialect
from agentworld.dialects.exchange import Delta, Reply
from agentworld.errors import AgentWorldError, ContextLengthError
from agentworld.forest import match_key
from agentworld.gateway.admit import Admitted
from agentworld.gateway.context import drop_limit
from agentworld.gateway.http import ClientGoneError, Http
from agentworld.gateway.identity import PrefixIndex
from agentworld.gateway.retries import Retries
from agentworld.records import Step

log = structlog.get_logger("agentworld.gateway")
PING_SECONDS = 15.0
"""After so long without a word to the client, a keep-alive is sent."""


class Answer:
    """One call on its way. `committing`: from here on it ends by itself, whatever the client does."""

    def __init__(
        self,
        admitted: Admitted,
        dialect: Dialect,
        recorder: Recorder,
        prefixes: PrefixIndex,
        retries: Retries,
        http: Http,
    ) -> None:
        self._call, self._session, self._model, self._identity = admitted
        self._dialect = dialect
        self._recorder = recorder
        self._prefixes = prefixes
        self._retries = retries
        self._http = http
        self._collector = Collector()
        self._created = int(time.time())
        self._committing = False
        self._sent_at = time.monotonic()

    async def send(self) -> None:
        """Answer, or raise the error to answer with where nothing has been sent yet. Failures are on record."""
        work = self._stream() if self._call.request.stream else self._plain()
        try:
            await self._unless_gone(work)
        except ClientGoneError as error:
            await asyncio.shield(self._record_abort(error))
            raise
        except asyncio.CancelledError:
            await asyncio.shield(self._record_abort(ClientGoneError("the server is shutting down")))
            raise
        except Exception as error:
            if not self._committing:
                await self._record_failure(error)
            if not isinstance(error, AgentWorldError) or not self._http.started:
                raise
            await self._http.chunk(self._dialect.error_event(error), last=True)

    async def _unless_gone(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the work; where the client leaves first, cancel it, which also ends the engine's work."""
        working = asyncio.create_task(work)
        gone = asyncio.create_task(self._http.gone())
        try:
            await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                if not self._committing:
                    working.cancel()
                await asyncio.wait({working})
                if working.cancelled():
                    raise ClientGoneError("the client closed the connection before it had its reply")
            working.result()
        finally:
            gone.cancel()
            if not working.done() and not self._committing:
                working.cancel()
                await asyncio.wait({working})

    @asynccontextmanager
    async def _reply(self) -> AsyncIterator[AsyncIterator[Delta]]:
        async with AsyncExitStack() as stack:
            try:
                deltas = await stack.enter_async_context(self._ask())
            except ContextLengthError:
                if not drop_limit(self._call):
                    raise
                deltas = await stack.enter_async_context(self._ask())
            yield deltas

    @asynccontextmanager
    async def _ask(self) -> AsyncIterator[AsyncIterator[Delta]]:
        call, engine = self._call, self._model.engine
        if call.prompt_ids is None or self._model.token_in is None:
            async with engine.chat(call.request) as deltas:
                yield deltas
        else:
            async with engine.generate(call.prompt_ids, call.request, call.sampling) as deltas:
                yield self._model.token_in.read(deltas, call)

    async def _plain(self) -> None:
        async with self._reply() as deltas:
            async for delta in deltas:
                self._collector.feed(delta)
        reply, steps = await self._commit()
        self._http.add_header("x-agentworld-step", steps[0].step_id)
        await self._http.reply(200, self._dialect.response_body(self._call.request, reply))

    async def _stream(self) -> None:
        events = self._dialect.events(self._call.request, self._reply_id, self._call.model, self._created)
        pings = asyncio.create_task(self._ping())
        try:
            async with self._reply() as deltas:
                async for delta in deltas:
                    seen = self._collector.feed(delta)
                    data = events.delta(seen) if seen is not None else b""
                    if data:
                        await self._send(data)
            reply, _ = await self._commit()
        finally:
            pings.cancel()
        await self._send(events.finish(reply), last=True)

    async def _send(self, data: bytes, *, last: bool = False) -> None:
        self._sent_at = time.monotonic()
        if not self._http.started:
            await self._http.begin_events()
        await self._http.chunk(data, last=last)

    async def _ping(self) -> None:
        """Keep a silent stream open."""
        while True:
            wait = self._sent_at + PING_SECONDS - time.monotonic()
            await asyncio.sleep(max(wait, 0.001))
            if time.monotonic() - self._sent_at >= PING_SECONDS:
                await self._send(self._dialect.ping)

    @property
    def _reply_id(self) -> str:
        return f"{self._dialect.reply_prefix}{self._call.exchange_id}"

    async def _commit(self) -> tuple[Reply, list[Step]]:
        choices = self._collector.choices(self._call.request.sampling.n)
        self._model.observe(all(choice.ids is not None for choice in choices))
        exchange = self._recorder.plan(self._call, self._session, self._collector, choices)
        self._committing = True
        steps = await self._recorder.store(exchange, self._call, self._session)
        self._retries.answered(self._identity.key, self._call.body_digest, self._call.trajectory_id)
        for choice in choices:
            path = match_key(self._call.keys[-1], choice.message)
            self._prefixes.add(self._identity.key, path, self._call.trajectory_id)
        reply = Reply(
            reply_id=self._reply_id,
            model=self._call.model,
            created=self._created,
            choices=choices,
            prompt_ids=self._call.prompt_ids or self._collector.prompt_ids,
            usage=self._collector.usage,
        )
        return reply, steps

    def _failed(self, half_done: dict[int, str] | None = None) -> None:
        """Let a retry of this call take its place, and no other's."""
        self._session.failed(self._call.body_digest, half_done)
        self._retries.failed(self._identity.key, self._call.body_digest, self._call.trajectory_id)

    async def _record_failure(self, error: Exception) -> None:
        """Record that the call failed; the caller is told of the first error even where this one fails too."""
        known = error if isinstance(error, AgentWorldError) else AgentWorldError(f"internal: {type(error).__name__}")
        self._failed()
        try:
            await self._recorder.fail(self._call, known)
        except AgentWorldError as failure:
            log.error("failure_not_recorded", trajectory=self._call.trajectory_id, code=failure.code)

    async def _record_abort(self, error: ClientGoneError) -> None:
        """Record what there was of the reply when the client left."""
        if self._committing:
            return
        try:
            if self._collector.empty:
                self._failed()
                await self._recorder.fail(self._call, error)
            else:
                choices = self._collector.choices(aborted=True)
                steps = await self._recorder.commit(self._call, self._session, self._collector, choices)
                self._failed({step.choice_index: step.step_id for step in steps})
        except AgentWorldError as failure:
            log.error("abort_not_recorded", trajectory=self._call.trajectory_id, code=failure.code)
