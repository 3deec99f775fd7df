"""Clients that leave: noticed once a call lasts, by servers of both kinds, and nothing is kept of those that stay."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, MutableMapping
from typing import Any

import pytest

from agentworld.gateway import leaving
from agentworld.gateway.http import Http
from agentworld.gateway.leaving import Leaving
from agentworld.timing_wheel import TimingWheel

from .harness import until

Message = MutableMapping[str, Any]
GONE: Message = {"type": "http.disconnect"}
END: Message = {"type": "http.request", "body": b"", "more_body": False}


class Client:
    """A connection. `plain`: the server gives futures, as some do, in the place of coroutines."""

    def __init__(self, plain: bool) -> None:
        self._plain = plain
        self.said: asyncio.Queue[Message] = asyncio.Queue()
        self.futures: list[asyncio.Future[Message]] = []
        self.asked = 0

    def receive(self) -> Awaitable[Message]:
        self.asked += 1
        if not self._plain:
            return self.said.get()
        self.futures.append(asyncio.get_running_loop().create_future())
        if not self.said.empty():
            self.futures[-1].set_result(self.said.get_nowait())
        return self.futures[-1]

    def say(self, message: Message) -> None:
        if self.futures and not self.futures[-1].done():
            self.futures[-1].set_result(message)
        else:
            self.said.put_nowait(message)


@pytest.fixture(params=[False, True])
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setattr(leaving, "ASKED_AFTER", 0.0)
    return Client(request.param)


async def test_who_leaves_is_noticed_once_and_the_end_of_the_body_is_no_leaving(client: Client) -> None:
    heard: list[str] = []
    watch = Leaving(TimingWheel(), client.receive, lambda: heard.append("left"))
    assert client.asked == 0
    client.say(END)
    await until(lambda: client.asked == 2)
    assert heard == []
    client.say(GONE)
    await until(lambda: heard == ["left"])
    client.say(GONE)
    await asyncio.sleep(0.01)
    assert (heard, client.asked) == (["left"], 2)
    watch.stop()


async def test_a_server_that_fails_to_say_has_lost_its_client() -> None:
    async def receive() -> Message:
        raise ConnectionResetError

    left = asyncio.get_running_loop().create_future()
    Leaving(TimingWheel(), receive, lambda: left.set_result(None))
    await left


async def test_who_stays_is_not_asked_where_the_call_is_over_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "ASKED_AFTER", 3_600.0)
    client = Client(True)
    watch = Leaving(TimingWheel(), client.receive, lambda: None)
    await asyncio.sleep(0.01)
    watch.stop()
    assert client.asked == 0


async def test_nothing_is_heard_or_kept_after_the_end(client: Client) -> None:
    class Call:
        def __init__(self) -> None:
            self.heard: list[str] = []
            self.watch = Leaving(TimingWheel(), client.receive, self.left)

        def left(self) -> None:
            self.heard.append("left")

    call = Call()
    heard = call.heard
    await until(lambda: client.asked == 1)
    call.watch.stop()
    client.futures.clear()
    gone = weakref.ref(call)
    gc.disable()
    try:
        del call
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert gone() is None
    finally:
        gc.enable()
    client.say(GONE)
    await asyncio.sleep(0)
    assert heard == []


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_of_declared_length_is_not_waited_for_any_longer(declared: bool) -> None:
    client = Client(False)
    headers = [(b"content-length", b"5")] if declared else []
    http = Http({"type": "http", "method": "POST", "path": "/", "headers": headers}, client.receive, _nothing)
    for piece in (b"he", b"llo"):
        client.say({"type": "http.request", "body": piece, "more_body": True})
    if not declared:
        client.say(END)
    assert await http.body(1_000, 60.0) == b"hello"
    assert client.asked == (2 if declared else 3)


async def _nothing(message: Message) -> None:
    """Whatever is sent is lost."""


@pytest.mark.parametrize("asked", [True, False])
async def test_no_cycles_are_left(asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "ASKED_AFTER", 0.0 if asked else 3_600.0)

    async def watched() -> weakref.ref[Client]:
        client = Client(True)
        watch = Leaving(TimingWheel(), client.receive, lambda: None)
        if asked:
            await until(lambda: client.asked == 1)
        watch.stop()
        return weakref.ref(client)

    gc.disable()
    try:
        gone = await watched()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert gone() is None
    finally:
        gc.enable()
