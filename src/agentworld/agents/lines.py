"""A command that stays up and takes rollouts as JSON lines, for agents whose start costs more than their work.

To the command: {"id", "base_url", "api_key", "prompt", "messages", "tools", "environment_url", "model", "sampling",
"max_turns"}, and {"id", "cancel": true} for one that ran out of time. From it: {"id", "answer"} or {"id", "error"}.
It ends when its stdin does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from agentworld.agents.definition import CommandAgent
from agentworld.agents.ports import AgentFailure
from agentworld.agents.process import Child, end_group, keep_tail, spawn

LINE_LIMIT = 16 * 1024 * 1024


class LineReply(msgspec.Struct, frozen=True):
    """What the command says about one rollout."""

    id: str
    answer: str | None = None
    error: str | None = None


class LineProcess:
    """One such command: started with the first rollout, started again after it died."""

    def __init__(self, agent: CommandAgent) -> None:
        self._agent = agent
        self._process: Child | None = None
        self._readers: list[asyncio.Task[None]] = []
        self._expected: dict[str, asyncio.Future[LineReply]] = {}
        self._stderr = bytearray()
        self._starting = asyncio.Lock()

    async def ask(self, task: Mapping[str, Any]) -> str | None:
        """One rollout; returns the answer. AgentFailure with the command's error, or where it died."""
        process = await self._running()
        expected = self._expected
        identity: str = task["id"]
        reply_due: asyncio.Future[LineReply] = asyncio.get_running_loop().create_future()
        expected[identity] = reply_due
        try:
            await self._send(process, task)
            reply = await reply_due
        except asyncio.CancelledError:
            with contextlib.suppress(AgentFailure):
                await self._send(process, {"id": identity, "cancel": True})
            raise
        finally:
            expected.pop(identity, None)
        if reply.error is not None:
            raise AgentFailure(reply.error)
        return reply.answer

    async def close(self) -> None:
        """End the command and everything that it started."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            await end_group(self._process)
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    async def _running(self) -> Child:
        async with self._starting:
            if self._process is not None and self._process.returncode is None:
                return self._process
            command = [part.replace("{python}", sys.executable) for part in self._agent.command]
            process = await spawn(command, {**os.environ, **self._agent.env}, self._agent.cwd, limit=LINE_LIMIT)
            assert process.stdout is not None
            assert process.stderr is not None
            # Each process has its own: what the old one leaves unanswered fails without touching the new one's.
            self._process, self._stderr, self._expected = process, bytearray(), {}
            self._readers = [
                asyncio.create_task(self._read(process, process.stdout, self._expected)),
                asyncio.create_task(keep_tail(process.stderr, self._stderr)),
            ]
            return process

    async def _send(self, process: Child, message: Mapping[str, Any]) -> None:
        assert process.stdin is not None
        try:
            process.stdin.write(msgspec.json.encode(message) + b"\n")
            await process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            raise AgentFailure(self._obituary()) from None

    async def _read(
        self,
        process: Child,
        stdout: asyncio.StreamReader,
        expected: dict[str, asyncio.Future[LineReply]],
    ) -> None:
        try:
            while line := await stdout.readline():
                try:
                    reply = msgspec.json.decode(line, type=LineReply)
                except msgspec.MsgspecError:
                    continue  # A stray print of the agent; its rollouts end by their time-out if it says nothing else.
                reply_due = expected.get(reply.id)
                if reply_due is not None and not reply_due.done():
                    reply_due.set_result(reply)
        except ValueError:
            pass  # A line over LINE_LIMIT: the stream cannot be read on.
        await end_group(process)
        for reply_due in expected.values():
            if not reply_due.done():
                reply_due.set_exception(AgentFailure(self._obituary()))

    def _obituary(self) -> str:
        words = [line for line in self._stderr.decode("utf-8", "replace").splitlines() if line.strip()]
        return f"the agent's process has ended: {words[-1][:400] if words else 'it wrote nothing to stderr'}"
