"""One command as a child process: its own process group, bounded output, and nothing left behind."""

from __future__ import annotations

import asyncio
import asyncio.subprocess
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentworld.agents.ports import AgentFailure

GRACE_SECONDS = 2.0
KEPT_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that has ended. `stdout`, `stderr`: the last 256 KiB each. `timed_out`: it was killed for its time."""

    code: int
    stdout: str
    stderr: str
    timed_out: bool = False


class Child(asyncio.subprocess.Process):
    """A child process whose end is known when it ends; asyncio's own `wait` waits for whoever holds its pipes, too."""

    def __init__(self, transport: asyncio.SubprocessTransport, protocol: Protocol) -> None:
        super().__init__(transport, protocol, asyncio.get_running_loop())
        self._ended = protocol.ended

    async def ended(self) -> None:
        """Wait for the process itself."""
        await self._ended.wait()


class Protocol(asyncio.subprocess.SubprocessStreamProtocol):
    """asyncio's, with an event for the end of the process."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit=limit, loop=asyncio.get_running_loop())
        self.ended = asyncio.Event()

    def process_exited(self) -> None:
        """Called by the loop."""
        super().process_exited()
        self.ended.set()


async def spawn(command: Sequence[str], env: Mapping[str, str], cwd: str | None, *, limit: int = 65536) -> Child:
    """Start `command` in its own process group with piped stdio; AgentFailure where it cannot be started.

    `limit`: bytes of the longest line that is read from it.
    """
    try:
        transport, protocol = await asyncio.get_running_loop().subprocess_exec(
            lambda: Protocol(limit),
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise AgentFailure(f"cannot start {command[0]!r}: {error}") from None
    return Child(transport, protocol)


async def run_command(
    command: Sequence[str], *, env: Mapping[str, str], cwd: str | None, stdin: bytes, timeout: float
) -> Finished:
    """Run a command to its end or to its time-out. Whatever it started in its process group ends with it."""
    process = await spawn(command, env, cwd)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    kept = (bytearray(), bytearray())
    pipes = (process.stdout, process.stderr)
    readers = [asyncio.create_task(keep_tail(pipe, tail)) for pipe, tail in zip(pipes, kept, strict=True)]
    timed_out = False
    try:
        try:
            async with asyncio.timeout(timeout):
                await feed(process.stdin, stdin)
                await process.ended()
        except TimeoutError:
            timed_out = True
    finally:
        await end_group(process)
        # A grandchild that left the group may hold the pipes open; what was read by now is kept.
        await asyncio.wait(readers, timeout=GRACE_SECONDS)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    stdout, stderr = (bytes(tail).decode("utf-8", "replace") for tail in kept)
    return Finished(process.returncode or 0, stdout, stderr, timed_out)


async def feed(stream: asyncio.StreamWriter, data: bytes) -> None:
    """Write `data` and close; a command that does not read its stdin is no error."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        stream.write(data)
        await stream.drain()
    stream.close()


async def keep_tail(stream: asyncio.StreamReader, tail: bytearray) -> None:
    """Read to the end and keep the last KEPT_BYTES in `tail`."""
    while chunk := await stream.read(65536):
        tail += chunk
        del tail[:-KEPT_BYTES]


async def end_group(process: Child) -> None:
    """Terminate the process group: SIGTERM, and SIGKILL after GRACE_SECONDS; also what an ended leader left behind."""
    if process.returncode is None:
        signal_group(process.pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                await process.ended()
        except TimeoutError:
            pass
    signal_group(process.pid, signal.SIGKILL)
    await process.ended()


def signal_group(pid: int, number: int) -> None:
    """Signal every process of the group that `pid` leads, if there is one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
