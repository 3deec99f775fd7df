"""The tries of one call: which engine is next, how long to wait before, and when to give up.

A call is tried again only while its caller has seen nothing of the reply, never for what is the caller's own fault, and
not once its time is over. Another engine that is well is asked at once; the same one again only after a while, and only
where it was busy, away, or broke off.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Collection
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from types import TracebackType
from typing import Any

from agentworld.engines.base import Engine, EngineAbortedError, EngineBrokeError, EngineBusyError, EngineTimeoutError
from agentworld.errors import AgentWorldError, EngineError, EngineUnreachableError
from agentworld.gateway.clock import Clock
from agentworld.gateway.queueing import Place
from agentworld.gateway.upstreams import OutOfTimeError, Turn, Upstream, Upstreams
from agentworld.timing_wheel import Limit, TimingWheel

FIRST_WAIT, LONGEST_WAIT = 0.25, 4.0
"""Seconds before the same engines are asked again; doubled each time."""
MAX_ABORTS = 16
"""An engine that cuts a reply more often has no mind to finish it."""
_PASSING = (EngineBrokeError, EngineBusyError, EngineUnreachableError)


class Attempts:
    """One call's. `seconds`: that it has in all, from its first dispatch on. `errors`: the failed tries as (engine,
    code).
    """

    def __init__(self, upstreams: Upstreams, trajectory_id: str, retries: int, seconds: float, clock: Clock) -> None:
        self._upstreams = upstreams
        self._trajectory_id = trajectory_id
        self._left = retries
        self._clock = clock
        self._seconds = seconds
        self._deadline: float | None = None
        self._tried: list[Upstream] = []
        self._rounds = 0
        self._limit: Limit | None = None
        self._aborts = self._resubmitted = 0
        self._turn: Turn | None = None
        self._latest: Upstream | None = None
        self._left_behind: list[Upstream] = []
        self.errors: list[tuple[str, str]] = []

    @property
    def engine(self) -> Upstream | None:
        """That of the present try, or of the latest."""
        return self._latest if self._turn is None else self._turn.upstream

    @property
    def place(self) -> Place | None:
        """The present try's at its engine."""
        return None if self._turn is None else self._turn.place

    @property
    def left(self) -> float:
        """Seconds that are left for this call; all of them until it was sent to an engine."""
        return self._seconds if self._deadline is None else max(self._deadline - self._clock.now(), 0.0)

    @property
    def facts(self) -> dict[str, Any]:
        """For the step's metadata: which engine answered, where there are several, and what was tried before."""
        facts: dict[str, Any] = {}
        if len(self._upstreams) > 1 and self.engine is not None:
            facts["engine"] = self.engine.address
        if self.errors:
            facts["failed_tries"] = [list(each) for each in self.errors]
        if self._resubmitted:
            facts["resubmitted"] = self._resubmitted
        return facts

    @property
    def aborts_left(self) -> int:
        """How many more times an engine may cut this reply."""
        return MAX_ABORTS - self._aborts

    async def pause(self, *, resubmitting: bool = False) -> None:
        """Count that an engine cut the reply, and give it the time to be ready again, or whoever updates it to pause
        the gateways. EngineTimeoutError where this call has no time left.
        """
        wait = min(FIRST_WAIT * 2**self._aborts, LONGEST_WAIT)
        self._aborts += 1
        self._resubmitted += resubmitting
        if self.engine is not None:
            self.engine.counts.resubmitted += 1
        if wait >= self.left:
            raise EngineTimeoutError("the time for this call ended while the weights of its engine changed")
        await self._clock.sleep(wait)

    async def go_on(self, error: EngineError | None) -> Engine:
        """The engine at which a reply that was cut goes on, once it may be asked. `error`: of the latest piece, None
        where the engine cut it. Another engine that is well is asked at once; the same one again after a while.
        """
        turn = self._turn
        assert turn is not None
        if error is not None:
            engine = turn.upstream
            self.errors.append((engine.address, error.code))
            turn.end(error)
            self._left_behind.append(engine)
            if self._upstreams.others(self._left_behind):
                engine.counts.failovers += 1
                engine.counts.resubmitted += 1
                self._aborts += 1
                self._resubmitted += 1
                await turn.move(self._left_behind)
                return turn.upstream.engine
        turn.place.give_back()
        self._left_behind.clear()
        await self.pause(resubmitting=True)
        turn.again()
        return turn.upstream.engine

    def next(self) -> AbstractAsyncContextManager[Upstream]:
        """The engine of the next try; an error in the context is that of the try."""
        return _Try(self, Turn(self._upstreams, self._trajectory_id, self._patience), self._tried)

    def begin(self, turn: Turn) -> None:
        """The next try begins at this turn's engine."""
        self._turn = turn
        self._resubmitted = 0
        self._left_behind.clear()

    def end(self) -> None:
        """The try has ended. A turn knows this call's patience, so kept it would be a cycle, for the garbage collector
        to find.
        """
        if self._turn is not None:
            self._latest, self._turn = self._turn.upstream, None

    def _patience(self) -> float:
        """How long the call may queue: the time before its first dispatch has a limit of its own."""
        return math.inf if self._deadline is None else self.left

    def bounded(self) -> AbstractContextManager[Limit]:
        """A try at an engine, which may take what is left of the call's time. EngineTimeoutError where it takes longer:
        OutOfTimeError where earlier tries had taken some of it.
        """
        if self._deadline is None:
            self._deadline = self._clock.now() + self._seconds
        return _Bounded(self, self._upstreams.wheel, self.left)

    def clocked(self, limit: Limit | None) -> None:
        """The limit of time that is in force, None for none."""
        self._limit = limit

    def overdue(self, seconds: float) -> EngineTimeoutError:
        """The error of a try that took longer than these seconds, which the call had left."""
        where = self.engine.address if self.engine is not None else "?"
        kind = OutOfTimeError if self.errors else EngineTimeoutError
        return kind(
            f"the engine at {where} did not end its reply within the {seconds:.3g} s that the call had left",
            hint="Check its load, or raise upstream_timeout",
        )

    @asynccontextmanager
    async def unclocked(self) -> AsyncIterator[None]:
        """Wait for something else than the engine: the time for this call does not run meanwhile."""
        limit, since = self._limit, self._clock.now()
        if limit is None or self._deadline is None or limit.expired:
            yield
            return
        limit.pause()
        try:
            yield
        finally:
            self._deadline += self._clock.now() - since
            limit.resume()

    async def again(self, error: AgentWorldError) -> bool:
        """Whether to try again after this error of the latest try; waits where that is wise."""
        engine = self.engine
        if engine is None or not isinstance(error, EngineError):
            return False
        self.errors.append((engine.address, error.code))
        if isinstance(error, EngineAbortedError):
            if self.aborts_left <= 0:
                return False
            await self.pause()
            return True
        if self._left == 0 or self.left == 0:
            return False
        if engine not in self._tried:
            self._tried.append(engine)
        if self._upstreams.others(self._tried):
            engine.counts.failovers += 1
        elif isinstance(error, _PASSING):
            wait = min(FIRST_WAIT * 2**self._rounds, LONGEST_WAIT)
            if wait >= self.left:
                return False
            self._rounds += 1
            await self._clock.sleep(wait)
        else:
            return False
        self._left -= 1
        return True


class _Try(AbstractAsyncContextManager[Upstream]):
    """One try of a call, at an engine where it has a place. `without`: see `Turn.begin`."""

    def __init__(self, attempts: Attempts, turn: Turn, without: Collection[Upstream]) -> None:
        self._attempts = attempts
        self._turn = turn
        self._without = without

    async def __aenter__(self) -> Upstream:
        turn = self._turn
        await turn.begin(self._without)
        self._attempts.begin(turn)
        return turn.upstream

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._attempts.end()
        await self._turn.leave(error)


class _Bounded(Limit):
    """A try with a limit of time."""

    __slots__ = ("_attempts", "_granted")

    def __init__(self, attempts: Attempts, wheel: TimingWheel, seconds: float) -> None:
        super().__init__(wheel, seconds)
        self._attempts = attempts
        self._granted = seconds

    def __enter__(self) -> Limit:
        self._attempts.clocked(self)
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._attempts.clocked(None)
        try:
            super().__exit__(kind, error, trace)
        except TimeoutError:
            raise self._attempts.overdue(self._granted) from None
        if self.expired and isinstance(error, TimeoutError):
            raise self._attempts.overdue(self._granted) from None
