"""Clients that read slowly, or not at all: the engine, its places and a drain do not wait for them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agentworld.gateway import outbox
from agentworld.gateway.access import EVERYTHING, GRANT
from agentworld.testing import ScriptedReply, ScriptedRequest

from .harness import Harness, running, until

TEXT = "a reply of several pieces"


class Reader:
    """A client of the app that takes what is sent while `reads` is set."""

    def __init__(self, gateway: Harness, stream: bool = True) -> None:
        self.reads = asyncio.Event()
        self.said = b""
        self.asked = False
        self.status = 0
        self.ended = asyncio.Event()
        body = {"messages": [{"role": "user", "content": "hello"}], "stream": stream}
        self._body: bytes | None = json.dumps(body).encode()
        path = "/t/t1/v1/chat/completions"
        scope = {"type": "http", "method": "POST", "path": path, "headers": [], GRANT: EVERYTHING}
        self.call = asyncio.create_task(gateway.gateway(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._body is None:
            await self.ended.wait()
            return {"type": "http.disconnect"}
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        self.asked = True
        await self.reads.wait()
        self.status = message.get("status", self.status)
        self.said += message.get("body", b"")

    @property
    def text(self) -> str:
        lines = [line[6:] for line in self.said.decode().splitlines() if line.startswith("data: {")]
        return "".join(json.loads(line)["choices"][0]["delta"].get("content") or "" for line in lines)


@asynccontextmanager
async def serving(script: Any, **more: Any) -> AsyncIterator[Harness]:
    async with running(script, concurrency=1, **more) as gateway:
        yield gateway
        await until(lambda: gateway.gateway.in_flight == 0)


def free(gateway: Harness) -> bool:
    """Whether nothing of a call holds a place, or up a drain."""
    return gateway.gateway.state.in_flight == 0 and gateway.gateway.models.figures()[0].in_flight == 0


async def test_a_reply_goes_on_record_while_its_reader_takes_nothing() -> None:
    async with serving(TEXT) as gateway:
        reader = Reader(gateway)
        await until(lambda: reader.asked and len(gateway.steps("t1")) == 1 and free(gateway))
        assert not reader.call.done()
        # Others get its place, and a drain does not wait.
        assert (await gateway.say("hi", "/t/t2"))[0] == 200
        gateway.pool.set_paused(True)
        assert (await asyncio.to_thread(gateway.pool.drain, 100.0)).drained
        assert not reader.said
        reader.reads.set()
        await reader.call
        assert reader.text == TEXT
        assert reader.said.endswith(b"data: [DONE]\n\n")
        (step,) = gateway.steps("t1")
        assert (step.finish_reason, step.excluded_reason) == ("stop", None)
        assert gateway.gateway.models.figures()[0].healthy


async def test_a_reader_that_takes_nothing_for_long_counts_as_gone() -> None:

    async def script(request: ScriptedRequest) -> ScriptedReply:
        return ScriptedReply(text=TEXT * 1000, token_delay=0.01) if request.call == 0 else ScriptedReply(text="ok")

    async with serving(script, serve={"write_timeout": 0.05}) as gateway:
        reader = Reader(gateway)
        await reader.call
        assert free(gateway)
        (step,) = gateway.steps("t1")
        assert (step.finish_reason, step.excluded_reason) == ("abort", "aborted")
        assert (await gateway.say("hi", "/t/t2"))[0] == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_a_whole_reply_that_nobody_takes_is_stored_and_let_go(stream: bool) -> None:
    async with serving(TEXT, serve={"write_timeout": 0.2}) as gateway:
        reader = Reader(gateway, stream)
        await until(lambda: len(gateway.steps("t1")) == 1 and free(gateway))
        await reader.call
        (step,) = gateway.steps("t1")
        assert (step.finish_reason, step.excluded_reason) == ("stop", None)
        assert [each.error for each in gateway.pool.list_exchanges("t1")] == [None]


async def test_the_time_of_an_engine_does_not_run_while_its_reader_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outbox, "BUFFER_BYTES", 10)
    limit = 1.5
    async with serving(TEXT, serve={"upstream_timeout": limit}) as gateway:
        reader = Reader(gateway)
        await until(lambda: reader.asked)
        since = time.monotonic()
        await until(lambda: time.monotonic() > since + 2 * limit)
        assert gateway.gateway.state.in_flight == 1  # More than enough waits, so the engine does too.
        reader.reads.set()
        await reader.call
        assert reader.text == TEXT
        assert gateway.gateway.models.figures()[0].failures == 0
        (step,) = gateway.steps("t1")
        assert step.finish_reason == "stop"


async def test_the_end_of_the_server_waits_for_no_reader() -> None:
    async with serving(ScriptedReply(text=TEXT, first_token_delay=0.0, token_delay=0.05)) as gateway:
        reader = Reader(gateway)
        await until(lambda: reader.asked)
        gateway.gateway.end(0.0)
        await reader.call
        (step,) = gateway.steps("t1")
        assert step.excluded_reason == "aborted"


async def test_the_end_of_a_stream_on_record_is_still_sent_when_the_server_ends() -> None:
    async with running(TEXT) as gateway:
        reader = Reader(gateway)
        await until(lambda: reader.asked and len(gateway.steps("t1")) == 1 and free(gateway))
        (task,) = gateway.gateway._calls
        gateway.gateway.end(0.0)
        await until(lambda: task.cancelling() > 0)
        for _ in range(20):
            await asyncio.sleep(0)
        reader.reads.set()
        await reader.call
        assert (reader.status, reader.text) == (200, TEXT)
        assert reader.said.endswith(b"data: [DONE]\n\n")
        assert b"shutting_down" not in reader.said
        assert len(gateway.steps("t1")) == 1
