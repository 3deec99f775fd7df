"""Signals that stop this program, kept for the place that can end what it started."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any, Self

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(KeyboardInterrupt):
    """This program was told to stop. `number`: the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class StopSignals:
    """SIGINT, SIGTERM and SIGHUP, remembered in the block and raised as Stopped where `raised` says.

    A handler that raises anywhere could do so between a process's start and the `try` that ends it. One that came too
    late to be raised inside is raised at the block's end. Signals that are ignored stay so, and elsewhere than in the
    main thread nothing is changed.
    """

    def __init__(self) -> None:
        self._waiting: list[int] = []
        self._raises = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            handlers = {number: signal.getsignal(number) for number in STOPPING}
            self._before = {number: each for number, each in handlers.items() if each not in (signal.SIG_IGN, None)}
            for number in self._before:
                signal.signal(number, self._hear)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._waiting and (kind is None or not issubclass(kind, Stopped)):
            raise Stopped(self._waiting[0])

    @contextlib.contextmanager
    def raised(self) -> Iterator[None]:
        """Here the first signal raises Stopped, one that came before too."""
        try:
            self._raises = True
            if self._waiting:
                raise Stopped(self._waiting[0])
            yield
        finally:
            self._raises = False

    def _hear(self, number: int, frame: object) -> None:
        self._waiting.append(number)
        if self._raises:
            self._raises = False
            raise Stopped(number)
