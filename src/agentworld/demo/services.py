"""The demo's server processes: started in order, watched, and stopped together."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from agentworld.errors import AgentWorldError

_URL = re.compile(r"http://[\w.\[\]:-]+:\d+")


class ServiceError(AgentWorldError):
    """A server process of the demo did not start or has ended."""

    code = "service_failed"


class Service:
    """One server process in a process group of its own; its output goes to `log`.

    The command prints its address once it is ready; `url` is that address.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path, environment: dict[str, str] | None = None) -> None:
        self.name = name
        self.log = log
        self.url = ""
        self._ready = threading.Event()
        log.parent.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
        self._reader = threading.Thread(target=self._read, name=f"{name}-log", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self.log.open("a", encoding="utf-8") as log:
            for line in self._process.stdout:
                log.write(line)
                log.flush()
                found = _URL.search(line)
                if found and not self.url:
                    self.url = found.group()
                    self._ready.set()
        # The output ends a moment before the process has its exit code.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5.0)
        self._ready.set()

    def wait_ready(self, timeout: float = 60.0) -> str:
        """The address; ServiceError where the process ended or `timeout` seconds went by."""
        self._ready.wait(timeout)
        if not self.url:
            state = "did not start in time" if self.alive else f"ended with code {self._process.poll()}"
            raise ServiceError(f"the {self.name} {state}", hint=f"Its output is in {self.log}")
        return self.url

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def stop(self, grace: float = 5.0) -> None:
        """Ask the process to end, then kill its whole group."""
        if self.alive:
            self._signal(signal.SIGTERM)
            deadline = time.monotonic() + grace
            while self.alive and time.monotonic() < deadline:
                time.sleep(0.02)
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._reader.join(timeout=5.0)

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            pass


class Services:
    """Server processes that live as long as the `with` block, whatever ends it."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: list[Service] = []

    def start(self, name: str, module: str, *arguments: str, environment: dict[str, str] | None = None) -> Service:
        """Start `python -m module arguments...`; returns at once, so that slow starts overlap."""
        command = [sys.executable, "-m", module, *arguments]
        service = Service(name, command, self._logs / f"{name.replace(' ', '-')}.log", environment)
        self._running.append(service)
        return service

    def check(self) -> None:
        """ServiceError where one of them has ended."""
        for service in self._running:
            if not service.alive:
                raise ServiceError(f"the {service.name} has ended", hint=f"Its output is in {service.log}")

    def __enter__(self) -> Services:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for service in reversed(self._running):
            service.stop()
