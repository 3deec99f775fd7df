"""Calls of functions in child processes: each with its time, bounded memory and bounded output.

A child is kept for the next call of the same function, and killed with everything that it started where a call goes
wrong. It sees files and network like its parent: it keeps faults away, not malice (see `sandbox` for that).
"""

from __future__ import annotations

import atexit
import functools
import os
import selectors
import subprocess
import sys
import threading
import time
from typing import Any

from agentworld.records import exact_json
from agentworld.rewards.isolation.apart import ENTER, processes_apart, written
from agentworld.rewards.isolation.child import LENGTH
from agentworld.rewards.isolation.outcome import end
from agentworld.rewards.protocol import EvaluationError

START_SECONDS = 60.0
OUTPUT_BYTES = 16 << 20
RESPONSE_BYTES = 16 << 20
MOST_IDLE = 32
_KEPT = 4096
_CHUNK = 65536


class Children:
    """Children with the same limits: `memory_mb` MiB of address space each, files of at most 256 MiB.

    A function's module may have a function `prepare` that loads what takes long, outside of the time of a call.
    """

    def __init__(self, memory_mb: int) -> None:
        self._memory = memory_mb
        self._lock = threading.Lock()
        self._idle: list[tuple[str, _Child]] = []

    def call(self, function: str, payload: Any, *, seconds: float, key: str | None = None) -> Any:
        """`function` ("module:name") of `payload`, both ways as JSON; EvaluationError says what went wrong.

        Calls from several threads run in as many children. `key`: whose code it is that the function calls; none of
        another key, or without one of another function, ever runs in the same child. Where a child that was kept ends
        during the call, an earlier call may have done it, and a fresh one is asked.
        """
        key = key or function
        kept = self._kept(key)
        try:
            child, answer = self._asked(kept or _Child(self._memory), function, payload, seconds)
        except _Ended:
            if kept is None:
                raise
            child, answer = self._asked(_Child(self._memory), function, payload, seconds)
        with self._lock:
            self._idle.append((key, child))
            spare = [each for _, each in self._idle[:-MOST_IDLE]]
            del self._idle[:-MOST_IDLE]
        for each in spare:
            each.kill()
        if "error" in answer:
            error = answer["error"]
            raise EvaluationError(error["message"], path=error.get("path"), hint=error.get("hint"))
        return answer["result"]

    def close(self) -> None:
        """End those that are idle."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, child in idle:
            child.kill()

    def _kept(self, key: str) -> _Child | None:
        """The last idle child of this key that still lives."""
        while True:
            with self._lock:
                place = next((at for at in reversed(range(len(self._idle))) if self._idle[at][0] == key), None)
                if place is None:
                    return None
                child = self._idle.pop(place)[1]
            if child.lives():
                return child
            child.kill()

    @staticmethod
    def _asked(child: _Child, function: str, payload: Any, seconds: float) -> tuple[_Child, dict[str, Any]]:
        try:
            child.prepare(function)
            return child, child.ask({"function": function, "payload": payload}, seconds)
        except BaseException:
            child.kill()
            raise


@functools.cache
def children(memory_mb: int) -> Children:
    """The children with this limit, shared by all who ask; ended when this process ends."""
    made = Children(memory_mb)
    atexit.register(made.close)
    return made


class _Ended(EvaluationError):
    """The child's process ended before it had answered."""


class _Child:
    """One process, which answers one call at a time."""

    def __init__(self, memory_mb: int) -> None:
        self._prepared: set[str] = set()
        requests, self._requests = os.pipe()
        self._responses, responses = os.pipe()
        status_reading, status = os.pipe()
        module = [sys.executable, "-m", "agentworld.rewards.isolation.child", str(requests), str(responses)]
        # Many threads of a numeric library would take the address space that is limited here.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        plan = {
            "mechanism": "processes" if processes_apart() else "none",
            "command": module,
            "environment": None,
            "limits": [("RLIMIT_AS", memory_mb << 20), ("RLIMIT_FSIZE", 256 << 20), ("RLIMIT_CORE", 0)],
            "tied": False,
            "threads": True,
        }
        with written(plan) as path:
            # Where there is no Linux, the child has no limits but its time and what it may print.
            enter = [sys.executable, "-I", "-S", str(ENTER), path, str(status)]
            self._process = subprocess.Popen(
                enter if sys.platform == "linux" else module,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
                pass_fds=[requests, responses, status],
            )
            for number in (requests, responses, status):
                os.close(number)
            assert self._process.stdout is not None
            self._output = self._process.stdout.fileno()
            self._said = bytearray()
            os.set_blocking(self._requests, False)
            try:
                self._exchange(b"", START_SECONDS)
            except BaseException:
                self.kill()
                raise
            finally:
                os.close(status_reading)

    def lives(self) -> bool:
        """Whether nothing has ended it since its last call."""
        return self._process.poll() is None

    def prepare(self, function: str) -> None:
        """Load the module of `function`, and let it load what it needs, before the time of a call begins."""
        module = function.partition(":")[0]
        if module not in self._prepared:
            self.ask({"function": function, "prepare": True}, START_SECONDS)
            self._prepared.add(module)

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Send a request and wait for the answer to it."""
        body = exact_json.encode(request)
        answer: dict[str, Any] = exact_json.decode(self._exchange(LENGTH.pack(len(body)) + body, seconds))
        return answer

    def kill(self) -> None:
        """End it and what it started."""
        end(self._process)
        if self._process.stdout is not None:
            self._process.stdout.close()
        for number in (self._requests, self._responses):
            if number >= 0:
                os.close(number)
        self._requests = self._responses = -1

    def _exchange(self, data: bytes, seconds: float) -> bytes:
        """Write `data` while reading the next frame and whatever is printed meanwhile."""
        left, frame, printed = memoryview(data), bytearray(), 0
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._responses, selectors.EVENT_READ)
            selector.register(self._output, selectors.EVENT_READ)
            if left:
                selector.register(self._requests, selectors.EVENT_WRITE)
            while not _whole(frame):
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                for number in [key.fd for key, _ in ready]:
                    if number == self._requests:
                        left = self._write(left)
                        if not left:
                            selector.unregister(number)
                        continue
                    piece = os.read(number, _CHUNK)
                    if not piece:
                        raise self._died()
                    if number == self._responses:
                        frame += piece
                    else:
                        printed += len(piece)
                        self._said += piece
                        del self._said[:-_KEPT]
                if max(printed, len(frame)) > min(OUTPUT_BYTES, RESPONSE_BYTES):
                    raise EvaluationError(f"it wrote over {OUTPUT_BYTES >> 20} MiB and was ended")
                if not _whole(frame) and time.monotonic() >= deadline:
                    raise EvaluationError(f"it did not end within {seconds:g} s and was killed")
        return bytes(frame[LENGTH.size :])

    def _write(self, left: memoryview) -> memoryview:
        try:
            return left[os.write(self._requests, left[:_CHUNK]) :]
        except BlockingIOError:
            return left
        except OSError:
            raise self._died() from None

    def _died(self) -> _Ended:
        said = self._said.decode("utf-8", "replace").strip()[-300:]
        return _Ended("its process ended" + (f": {said}" if said else " without a word"))


def _whole(frame: bytearray) -> bool:
    return len(frame) >= LENGTH.size and len(frame) >= LENGTH.size + LENGTH.unpack(frame[: LENGTH.size])[0]
