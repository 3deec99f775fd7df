"""Server processes of a measurement: started on chosen cores, watched for the processor time that they take."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from agentworld.bench.load import CallFailedError
from agentworld.errors import AgentWorldError

START_SECONDS = 120.0
_ADDRESS = re.compile(r"http://[0-9.]+:\d+")


class NotStartedError(AgentWorldError):
    """A server of a measurement did not start."""

    code = "measurement_failed"


class Cores:
    """`server`: where servers under test run; `rest`: for the engine and the callers. One core each, where there are
    two or more; the same set where the system cannot say.
    """

    def __init__(self) -> None:
        self.all = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        self.server = self.all[-1:]
        self.rest = self.all[:-1][:1] or self.server

    @property
    def apart(self) -> bool:
        """Whether servers have a core of their own."""
        return self.server != self.rest


class Server:
    """A process and its address."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url

    def cpu(self) -> float:
        """Seconds of processor time that the process and those below it have taken; 0 where the system cannot say."""
        return sum(_seconds(pid) for pid in _tree(self.process.pid))


@contextlib.contextmanager
def server(
    command: Sequence[str],
    cores: Sequence[int],
    *,
    url: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """Run a server on these cores until the context ends.

    Its address is the first that it prints, or `url`, which then is asked until it answers. NotStartedError with what
    it said last where it ends before that.
    """

    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, **(environment or {})},
        preexec_fn=lambda: _pin(cores),
        start_new_session=True,
    )
    said: list[str] = []
    found = threading.Event()
    address: list[str] = []

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            del said[:-40]
            if url is None and not address and (match := _ADDRESS.search(line)) is not None:
                address.append(match.group())
                found.set()
        found.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        if url is not None:
            _await_answer(url, process, said)
            address.append(url)
        elif not found.wait(START_SECONDS) or not address:
            raise NotStartedError(f"{command[0]} did not start: {''.join(said)[-2000:]}")
        yield Server(process, address[0])
    finally:
        _end(process)
        reader.join(5)


def report(command: Sequence[str], cores: Sequence[int]) -> bytes:
    """What a program prints that runs on these cores and ends by itself. CallFailedError with what it said last where
    it fails.
    """
    done = subprocess.run(command, capture_output=True, preexec_fn=lambda: _pin(cores), check=False)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace")
        raise CallFailedError(f"{command[2]} ended with {done.returncode}: {said[-2000:]}")
    return done.stdout


def _pin(cores: Sequence[int]) -> None:
    """Have this process run on these cores alone, where the system can do that."""
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)


def _await_answer(url: str, process: subprocess.Popen[str], said: list[str]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if _listens(url):
            return
        time.sleep(0.2)
    raise NotStartedError(f"nothing answers at {url}: {''.join(said)[-2000:]}")


def _listens(url: str) -> bool:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=2)
    with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(connection):
        connection.request("GET", "/")
        return connection.getresponse().status < 500
    return False


def _end(process: subprocess.Popen[str]) -> None:
    """End the process and what it started, which is its own process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(15)


def _tree(root: int) -> list[int]:
    """The process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [root]
    while waiting:
        found.append(pid := waiting.pop())
        waiting += children.get(pid, [])
    return found


def _seconds(pid: int) -> float:
    try:
        fields = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / float(os.sysconf("SC_CLK_TCK"))
