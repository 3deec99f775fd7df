"""The process that keeps a server's workers: starts them, starts those again that ended, and ends them at a signal."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

import structlog

log = structlog.get_logger("agentworld.http")
ENDING = (signal.SIGTERM, signal.SIGINT)
SOON = 5.0
"""Seconds; a worker that ends within them is started again only after a pause."""
PAUSE = 1.0
# A forked worker shares what was imported before. Elsewhere forks are not safe beside the system's own threads.
_METHOD = "fork" if sys.platform == "linux" else "spawn"


class Workers:
    """`count` processes that call `work`. `end_seconds`: time that they have after the signal that ends the server.

    Until `established` is set the end of one ends all, as what cannot start would be started for ever.
    """

    def __init__(self, count: int, work: Callable[[], None], end_seconds: float) -> None:
        self._count = count
        self._work = work
        self._end_seconds = end_seconds
        self._processes: dict[BaseProcess, float] = {}  # since when each runs
        self._due: list[float] = []  # when further ones are to be started
        self._ending = False
        self.established = False

    def run(self, begun: Callable[[], None] = lambda: None) -> int:
        """Keep them until SIGTERM or SIGINT. Call in the main thread. The exit status of the server: 1 where a worker
        ended before they were established, or had to be killed in the end. `begun`: called once the first are started,
        for what starts threads: what those hold would stay held in a forked worker.
        """
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        before = {number: signal.signal(number, self._heard) for number in ENDING}
        woken = signal.set_wakeup_fd(writing)
        try:
            for _ in range(self._count):
                self._start()
            begun()
            while not self._ending:
                self._look(reading)
                if not self._ending and self._failed():
                    self._end()
                    return 1
            return 0 if self._end() else 1
        except BaseException:
            self._end()
            raise
        finally:
            signal.set_wakeup_fd(woken)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(reading)
            os.close(writing)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self._ending = True

    def _start(self) -> None:
        context: Any = multiprocessing.get_context(_METHOD)
        process: BaseProcess = context.Process(target=_begin, args=(self._work,), name="worker")
        # A signal that came before the worker had its own way to end would be lost in it.
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        self._processes[process] = time.monotonic()

    def _look(self, reading: int) -> None:
        """Wait until something is to be done, and start what is due."""
        now = time.monotonic()
        timeout = max(min(self._due) - now, 0.0) if self._due else None
        if reading in wait([reading, *(process.sentinel for process in self._processes)], timeout):
            os.read(reading, 4096)
        now = time.monotonic()
        due = [when for when in self._due if when <= now]
        self._due = [when for when in self._due if when > now]
        for _ in due:
            try:
                self._start()
            except OSError as error:  # No memory, or too many processes: those that are left go on.
                log.error("worker_not_started", error=str(error))
                self._due.append(time.monotonic() + PAUSE)

    def _failed(self) -> bool:
        """Look after those that have ended. Whether all have to."""
        now = time.monotonic()
        for process in [each for each in self._processes if not each.is_alive()]:
            since = self._processes.pop(process)
            if not self.established:
                return True
            log.error("worker_ended", pid=process.pid, exit=process.exitcode)
            self._due.append(now if now - since > SOON else now + PAUSE)
        return False

    def _end(self) -> bool:
        """End all. Whether none had to be killed."""
        for process in self._processes:
            if process.is_alive():
                process.terminate()
        last = time.monotonic() + self._end_seconds
        gentle = True
        for process in self._processes:
            process.join(max(last - time.monotonic(), 0.0))
            if process.is_alive():
                gentle = False
                process.kill()
                process.join()
            with contextlib.suppress(ValueError):
                process.close()
        return gentle


def _begin(work: Callable[[], None]) -> None:
    signal.set_wakeup_fd(-1)
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    work()
