"""Trajectories that nobody ends: black-box agents say no word when they are done, and some die.

What came through the gateway and was silent for `idle_seconds` is closed: as finished where its last call was answered
and the reply awaits nothing, else (the call failed, the reply calls a tool whose result never came, or was broken off)
as abandoned. Trajectories that a program filled itself are its own to end, and one with a call on its way is no silent
one. Where the clock jumps ahead, as it does while a machine sleeps, nobody was silent for that time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog

from agentworld.errors import AgentWorldError, ConflictError, NotFoundError
from agentworld.gateway.running import RunningCalls
from agentworld.pool.protocol import Pool
from agentworld.records import Exchange, Step, TerminalStatus, Trajectory

log = structlog.get_logger("agentworld.gateway")
ROUND_SECONDS = 60.0
_PAGE = 100
_PER_ROUND = 5
"""Pages, so that a round stays short however many trajectories are open."""
_JUMP = 30.0
"""Seconds by which the clock may run ahead of the machine's own between two rounds."""


class IdleTrajectories:
    """Closes what is idle on one pool. `worker`: the name under which this process reports itself there. `running`: its
    calls. `steady`: seconds on a clock that nobody sets, and that stands still while the machine does.
    """

    def __init__(
        self,
        pool: Pool,
        idle_seconds: float,
        worker: str,
        now: Callable[[], float] = time.time,
        running: RunningCalls | None = None,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pool = pool
        self._idle = idle_seconds
        self._worker = worker
        self._now = now
        self._running = running or RunningCalls(pool, idle_seconds, now)
        self._cursor: str | None = None
        self._steady = steady
        self._last = (now(), steady())
        self._awake_since = 0.0

    async def run(self) -> None:
        """Go on until cancelled; at once return where nothing is to be closed ever."""
        while self._idle > 0:
            await asyncio.sleep(min(ROUND_SECONDS, self._idle))
            try:
                await asyncio.to_thread(self.round)
            except AgentWorldError as error:
                log.warning("idle_not_closed", code=error.code)

    def round(self) -> list[str]:
        """Close what is idle among the next open trajectories, if this worker is the one to do it; returns their ids.

        One worker of all on the pool does it, the first by name. Where two believe to be, nothing is closed twice.
        """
        self._notice_jump()
        workers = self._pool.gateway_workers()
        if workers and workers[0].worker != self._worker:
            return []
        closed = []
        for _ in range(_PER_ROUND):
            page = self._pool.list_trajectories(
                where=f"open and created_at < now - {self._idle:.3f}s", cursor=self._cursor, limit=_PAGE
            )
            closed += [each.trajectory_id for each in page.items if self._close(each)]
            self._cursor = page.next_cursor
            if self._cursor is None:
                break
        return closed

    def _notice_jump(self) -> None:
        """Where the clock jumped ahead since the last round, all begin to be silent anew."""
        now, steady = self._now(), self._steady()
        if now - self._last[0] > steady - self._last[1] + _JUMP:
            self._awake_since = now
            log.warning("clock_jumped", seconds=round(now - self._last[0] - (steady - self._last[1])))
        self._last = (now, steady)

    def _close(self, trajectory: Trajectory) -> bool:
        name = trajectory.trajectory_id
        step = self._last_step(name)
        if step is not None and step.dialect is None:
            return False  # A program submitted it.
        call = self._last_call(name)
        if call is None or max(_ended(call), _ended(step or call), self._awake_since) > self._now() - self._idle:
            return False
        if self._running.known(name):
            return False
        answered = call.error is None and step is not None and awaits_nothing(step)
        status: TerminalStatus = "finished" if answered else "abandoned"
        try:
            self._pool.complete_trajectory(name, status)
        except (ConflictError, NotFoundError):
            return False  # It was ended or deleted since it was listed; the others' turn comes all the same.
        log.info("idle_closed", trajectory=name, status=status)
        return True

    def _last_step(self, name: str) -> Step | None:
        page = self._pool.list_steps(trajectory_id=name, order="newest", limit=1, include=("messages",))
        return page.items[0] if page.items else None

    def _last_call(self, name: str) -> Exchange | None:
        """The call that was stored last, be it a failed one."""
        return next(iter(self._pool.list_exchanges(name, order="newest", limit=1)), None)


def _ended(record: Step | Exchange) -> float:
    """When a call, or the reply that a step holds, was over."""
    return record.created_at + (record.latency_ms or 0.0) / 1000


def awaits_nothing(step: Step) -> bool:
    """Whether a conversation can end with this reply: it is whole, and calls no tool."""
    reply = step.response_message
    return reply is not None and not reply.tool_calls and step.finish_reason not in ("abort", "tool_calls")
