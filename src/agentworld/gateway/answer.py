"""Answers an admitted call: asks an engine, records the exchange, and only then says that it is done."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any

import structlog

from agentworld.capture.collect import Collector
from agentworld.capture.recorder import Recorder
from agentworld.dialects.dialect import Dialect, Events
from agentworld.dialects.exchange import Choice, Delta, Reply
from agentworld.engines.base import Engine, EngineAbortedError
from agentworld.engines.connection import WholeReply
from agentworld.errors import AgentWorldError, ContextLengthError, EngineError
from agentworld.gateway import metrics
from agentworld.gateway.admit import Admitted
from agentworld.gateway.context import drop_limit
from agentworld.gateway.first_token import begins_early, begun_within
from agentworld.gateway.http import ClientGoneError, Http
from agentworld.gateway.large import INLINE_BYTES, apart
from agentworld.gateway.outbox import Outbox
from agentworld.gateway.resubmit import Resubmission, can_go_on
from agentworld.gateway.retries import Retries
from agentworld.gateway.state import SharedState
from agentworld.records import Policy, Step

log = structlog.get_logger("agentworld.gateway")
Take = Callable[[Delta], Awaitable[None] | None]
"""Takes a piece; what it gives, if anything, is waited for before the next one."""
PING_SECONDS = 15.0
"""After so long without a word to the client, a keep-alive is sent."""


class Answer:
    """One call on its way. `committing`: from here on it ends by itself, whatever the client does. `shown`: the client
    has seen a piece of the reply, so that no other engine may be asked.
    """

    def __init__(
        self,
        admitted: Admitted,
        dialect: Dialect,
        recorder: Recorder,
        retries: Retries,
        state: SharedState,
        http: Http,
    ) -> None:
        self._call, self._session = admitted.call, admitted.session
        self._model, self._identity = admitted.model, admitted.identity
        self._dialect = dialect
        self._recorder = recorder
        self._retries = retries
        self._http = http
        self._flight = state.flight()
        self._attempts = self._model.attempts(self._call.trajectory_id)
        self._collector = Collector()
        self._choices: list[Choice] = []
        self._shown = False
        self._created = int(time.time())
        self._writer: Events | None = None
        self._committing = False
        self._stored = False
        self._sent_at = time.monotonic()
        self._watch = http.watch
        self._outbox = Outbox(http, self._reader_left) if self._call.request.stream else None
        self._task: asyncio.Task[Any] | None = None
        self._left = self._stalled = False

    async def send(self) -> None:
        """Answer, or raise the error to answer with where nothing has been sent yet. Failures are on record."""
        announcing = asyncio.create_task(self._announce()) if self._call.anonymous is not None else None
        try:
            await self._unless_gone()
            metrics.TALLIES.observe(metrics.ADDED, self._watch.added)
        except ClientGoneError as error:
            await self._abort_on_record(error)
            raise
        except asyncio.CancelledError:
            if self._committing and not self._stored:
                _say_lost("reply", self._call.trajectory_id)
            await self._abort_on_record(ClientGoneError("the server is shutting down"))
            raise
        except Exception as error:
            if not self._stored:
                await self._record_failure(error)
            self._flight.leave()
            outbox, writer = self._outbox, self._writer
            if not isinstance(error, AgentWorldError) or outbox is None or not outbox.begun:
                raise
            await outbox.end(writer.fail(error) if writer is not None else self._dialect.error_event(error))
        finally:
            self._flight.leave()
            if self._outbox is not None:
                await self._outbox.close()
            if announcing is not None:
                announcing.cancel()

    async def _announce(self) -> None:
        try:
            await self._recorder.announce(self._call)
        except AgentWorldError as error:
            log.warning("call_not_announced", trajectory=self._call.trajectory_id, code=error.code)

    async def _unless_gone(self) -> None:
        """Do the work; where the client leaves first, break it off, which also ends the engine's work."""
        task = self._task = asyncio.current_task()
        assert task is not None
        leaving = self._http.leaving(self._client_left)
        try:
            await (self._stream() if self._outbox is not None else self._plain())
        except asyncio.CancelledError:
            if not self._left or task.cancelling() > 1:
                raise
            how = (
                "took nothing of its reply any more"
                if self._stalled
                else "closed the connection before it had its reply"
            )
            raise ClientGoneError(f"the client {how}") from None
        finally:
            leaving.stop()
            self._task = None
            if self._left:
                task.uncancel()

    def _client_left(self) -> None:
        """Break off the work, once, unless its reply is on its way into the pool."""
        if self._task is not None and not self._committing and not self._left:
            self._left = True
            self._task.cancel()

    def _reader_left(self) -> None:
        """The client takes nothing of its reply any more, as if it had closed the connection."""
        self._stalled = True
        self._client_left()

    async def _abort_on_record(self, error: ClientGoneError) -> None:
        recording = asyncio.create_task(self._record_abort(error))
        try:
            await asyncio.shield(recording)
        finally:
            if not recording.done():
                _say_lost("abort", self._call.trajectory_id)

    async def _ask(self, begin: Callable[[], Take]) -> None:
        """Ask engines until one has given a whole reply. Each try begins with `begin`, and its pieces go to what that
        returns.
        """
        pause_wait: float | None = None
        while True:
            take = begin()
            self._watch.wait()
            try:
                async with self._attempts.next() as upstream:
                    self._call.policy = await self._flight.enter(self._call.model, pause_wait, self._attempts.place)
                    with self._attempts.bounded():
                        async with await self._asked(upstream.engine) as deltas:
                            await self._take(self._read(deltas), take)
                    self._watch.work()
                    self._choices = self._collector.choices(self._call.request.sampling.n)
                break
            except ContextLengthError:
                self._flight.leave()
                if self._shown or not drop_limit(self._call):
                    raise
                self._collector = Collector()
                pause_wait = self._attempts.left
            except EngineError as error:
                self._flight.leave()
                if self._shown:
                    raise
                self._collector = Collector()  # What the failed try said is no reply, also where the client leaves now.
                if not await self._attempts.again(error):
                    raise
                # A call that was taken once waits for the end of an update as long as it may take.
                pause_wait = self._attempts.left

    async def _take(self, deltas: AsyncIterator[Delta], take: Take) -> None:
        """Take the pieces of a reply as they come."""
        if isinstance(deltas, WholeReply):
            pieces = await deltas.all()
            self._watch.work()
            for delta in pieces:
                self._check(delta)
                if (taking := take(delta)) is not None:
                    await taking
            return
        async for delta in deltas:
            self._watch.work()
            self._check(delta)
            if (taking := take(delta)) is not None:
                await taking
            self._watch.wait()

    def _check(self, delta: Delta) -> None:
        if delta.finish_reason == "abort" and not self._shown:
            raise EngineAbortedError("the engine cut the reply", hint="Send the request again")

    async def _asked(self, engine: Engine) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """The reply of an engine, which is asked once the context is entered."""
        call, token_in = self._call, self._model.token_in
        # Text completions go in and out as they are: there is no template to render with or to read back.
        is_chat = call.request.prompt is None
        first = self._model.settings.first_token_seconds if begins_early(call, engine.capabilities) else None
        if call.prompt_ids is None:
            # Drivers write the whole conversation as their engine wants it.
            make = engine.chat if is_chat else engine.complete
            ask = make(call.request) if call.size <= INLINE_BYTES else await apart(call.size, make, call.request)
            return begun_within(first, ask)
        if is_chat and token_in is not None and can_go_on(call):
            going_on = Resubmission(call, self._attempts.aborts_left, token_in.tokenizer, first)
            return aclosing(going_on.deltas(engine, self._updated))
        return begun_within(first, engine.generate(call.prompt_ids, call.request, call.sampling))

    def _read(self, deltas: AsyncIterator[Delta]) -> AsyncIterator[Delta]:
        """What an engine says, in token-in with text, reasoning and tool calls as they are read from its ids."""
        call, token_in = self._call, self._model.token_in
        if token_in is None or call.prompt_ids is None or call.request.prompt is not None:
            return deltas
        return token_in.read(deltas, call)

    async def _updated(self, error: EngineError | None) -> tuple[Engine, Policy]:
        """Which engine may be asked to go on with a reply that was cut, and the policy that speaks then."""
        self._flight.leave()
        engine = await self._attempts.go_on(error)
        return engine, await self._flight.enter(self._call.model, self._attempts.left, self._attempts.place)

    async def _plain(self) -> None:
        await self._ask(self._collect)
        reply, steps = await self._commit()
        self._http.add_header("x-agentworld-step", steps[0].step_id)
        await self._http.reply(200, self._dialect.response_body(self._call.request, reply))

    def _collect(self) -> Take:
        feed = self._collector.feed

        def take(delta: Delta) -> None:
            feed(delta)

        return take

    async def _stream(self) -> None:
        events = self._events()
        held = b""
        pings = asyncio.create_task(self._ping())

        async def take(delta: Delta) -> None:
            nonlocal held
            seen = self._collector.feed(delta)
            held += events.delta(seen) if seen is not None else b""
            # What only opens the reply is held back, as another engine may have to say what follows.
            # What came together goes on together.
            if held and not delta.more and (self._shown or not self._collector.empty):
                self._shown = True
                data, held = held, b""
                await self._send(data)

        def begin() -> Take:
            nonlocal events, held
            events, held = self._events(), b""
            return take

        try:
            await self._ask(begin)
            reply, _ = await self._commit()
        except AgentWorldError:
            if self._shown and held:
                await self._send(held)
            raise
        finally:
            pings.cancel()
        await self._send(held + events.finish(reply), last=True)

    def _events(self) -> Events:
        self._writer = self._dialect.events(self._call.request, self._reply_id, self._call.model, self._created)
        return self._writer

    async def _send(self, data: bytes, *, last: bool = False) -> None:
        """Say something to the client, at its own pace: the engine waits only for one that is far behind, and its time
        does not run then.
        """
        outbox = self._outbox
        assert outbox is not None
        self._sent_at = time.monotonic()
        if last:
            self._watch.wait()
            await outbox.end(data)
            return
        if outbox.full:
            self._watch.wait()
            async with self._attempts.unclocked():
                await outbox.room()
            self._watch.work()
        outbox.put(data)

    async def _ping(self) -> None:
        """Keep a silent stream open."""
        while True:
            wait = self._sent_at + PING_SECONDS - time.monotonic()
            await asyncio.sleep(max(wait, 0.001))
            if self._outbox is not None and not self._outbox.empty:
                self._sent_at = time.monotonic()  # Its reader has more to read than it does.
            elif time.monotonic() - self._sent_at >= PING_SECONDS:
                await self._send(self._dialect.ping)

    @property
    def _reply_id(self) -> str:
        return f"{self._dialect.reply_prefix}{self._call.exchange_id}"

    async def _commit(self) -> tuple[Reply, list[Step]]:
        choices = self._choices
        self._call.metadata = {**self._call.metadata, **self._attempts.facts}
        if not self._call.request.media:  # Some engines give ids for texts only.
            self._model.observe(choices)
        await self._recorder.look(self._call, self._session)
        exchange = self._recorder.plan(self._call, self._session, self._collector, choices)
        self._committing = True
        try:
            steps = await self._recorder.store(exchange, self._call, self._session)
        except AgentWorldError as error:
            metrics.CAPTURE_FAILURES.labels(error.code).inc()
            log.error("reply_not_recorded", code=error.code)
            raise
        self._stored = True
        metrics.answered(self._call, steps, self._collector.usage)
        self._retries.answered(self._identity.key, self._call.body_digest, self._call.trajectory_id)
        self._flight.leave()  # Its reader may take its time.
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
        metrics.unanswered(known.code)
        log.warning("call_failed", code=known.code, status=known.status)
        try:
            await self._recorder.fail(self._call, known)
        except AgentWorldError as failure:
            if not self._committing:  # Else the reply that the pool did not take is counted.
                metrics.CAPTURE_FAILURES.labels(failure.code).inc()
            log.error("failure_not_recorded", code=failure.code)

    async def _record_abort(self, error: ClientGoneError) -> None:
        """Record what there was of the reply when the client left."""
        if self._committing:
            return
        metrics.unanswered(error.code)
        try:
            if self._collector.empty:
                self._failed()
                await self._recorder.fail(self._call, error)
            else:
                choices = self._collector.choices(aborted=True)
                self._call.metadata = {**self._call.metadata, **self._attempts.facts}
                steps = await self._recorder.commit(self._call, self._session, self._collector, choices)
                self._failed({step.choice_index: step.step_id for step in steps})
        except AgentWorldError as failure:
            metrics.CAPTURE_FAILURES.labels(failure.code).inc()
            log.error("abort_not_recorded", code=failure.code)


def _say_lost(what: str, trajectory_id: str) -> None:
    """Nobody waits any more for what was to go on record, so whether it did is not known here."""
    metrics.CAPTURE_FAILURES.labels("shutting_down").inc()
    log.error(f"{what}_not_recorded", code="shutting_down", trajectory=trajectory_id)
