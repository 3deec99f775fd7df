"""Reading what a process writes without keeping all of it, and ending it with everything that it started."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import Any, Literal

KEPT_BYTES = 64 * 1024
_CHUNK = 64 * 1024

Ending = Literal["ended", "timed_out", "too_much_output"]


@dataclass(frozen=True, slots=True)
class Watched:
    """How a process ended, the last KEPT_BYTES of each of its streams, and all that came through the status pipe."""

    ending: Ending
    stdout: str
    stderr: str
    status: bytes


def watch(process: subprocess.Popen[bytes], stdin: bytes, *, seconds: float, output_bytes: int, status: int) -> Watched:
    """Feed and read `process` until its status pipe closes, its time is up, or it has written over `output_bytes`.

    Whatever happens, its process group is dead when this returns. `status`: the reading end of a pipe whose other end
    is held by what has to end, and by nothing else.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    streams = (process.stdout, process.stderr)
    tails = {stream.fileno(): bytearray() for stream in streams} | {status: bytearray()}
    ending: Ending = "ended"
    written = 0
    deadline = time.monotonic() + seconds
    left = memoryview(stdin)
    feeding = process.stdin.fileno()
    os.set_blocking(feeding, False)
    try:
        with selectors.DefaultSelector() as selector:
            for number in tails:
                selector.register(number, selectors.EVENT_READ)
            selector.register(feeding, selectors.EVENT_WRITE)
            running = True
            while running and ending == "ended":
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                for number in [key.fd for key, _ in ready]:
                    if number == feeding:
                        left = _feed(number, left)
                        if not left:
                            selector.unregister(number)
                            process.stdin.close()
                        continue
                    piece = os.read(number, _CHUNK)
                    _keep(tails[number], piece)
                    written += 0 if number == status else len(piece)
                    if not piece:
                        selector.unregister(number)
                        running = running and number != status
                if written > output_bytes:
                    ending = "too_much_output"
                elif running and time.monotonic() >= deadline:
                    ending = "timed_out"
    finally:
        end(process)
        with contextlib.suppress(OSError):
            process.stdin.close()
        for stream in streams:
            _drain(stream.fileno(), tails[stream.fileno()])
    said = [bytes(tails[stream.fileno()]).decode("utf-8", "replace") for stream in streams]
    for stream in streams:
        stream.close()
    return Watched(ending, said[0], said[1], bytes(tails[status]))


def end(process: subprocess.Popen[Any]) -> None:
    """Kill the group that `process` leads, and wait for it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _feed(number: int, left: memoryview) -> memoryview:
    try:
        return left[os.write(number, left[:_CHUNK]) :] if left else left
    except BlockingIOError:
        return left
    except OSError:
        return left[len(left) :]  # A command that does not read its input is no error.


def _keep(tail: bytearray, piece: bytes) -> None:
    tail += piece
    del tail[:-KEPT_BYTES]


def _drain(number: int, tail: bytearray) -> None:
    """What had been written by the end, up to what a pipe holds; whoever left the group may still be writing."""
    os.set_blocking(number, False)
    with contextlib.suppress(BlockingIOError):
        for _ in range(16):
            piece = os.read(number, _CHUNK)
            if not piece:
                return
            _keep(tail, piece)
