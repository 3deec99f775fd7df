"""Ending work that goes on until it is told to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def broken_off() -> Iterator[None]:
    """SIGTERM and SIGHUP break the work off as Ctrl-C does, so that what was begun is taken back."""

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (number for name in ("SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None)
    before = {number: signal.getsignal(number) for number in numbers}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # As with nohup.
            signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Set by the first SIGINT or SIGTERM; the second one ends at once."""
    stop = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
