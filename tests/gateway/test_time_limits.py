"""How long a call may take: all of its tries together, and an engine until its first token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agentworld.dialects.exchange import Delta
from agentworld.engines.base import Capabilities
from agentworld.gateway import answer, resubmit
from agentworld.gateway.first_token import FirstTokenError, begins_early, begun_within
from agentworld.testing import ScriptedReply, ScriptedRequest

from .clocks import HeldClock
from .fleet import Fleet, fleet
from .harness import until

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
STALLED = ScriptedReply(text="never", first_token_delay=600.0)


async def streamed(gateway: Fleet, trajectory: str = "t1") -> str:
    text = ""
    client = gateway.client(f"/t/{trajectory}")
    async for event in await client.chat.completions.create(model="m", messages=HELLO, stream=True):
        for choice in event.choices:
            text += choice.delta.content or ""
    return text


async def test_a_try_may_take_what_earlier_ones_left() -> None:
    clock = HeldClock()

    def script(request: ScriptedRequest) -> ScriptedReply:
        clock.advance(599.0)
        return ScriptedReply(status=500, error_body={"error": {"message": "the engine died"}})

    async with fleet(script, STALLED, clock=clock, serve={"upstream_timeout": 600.0}) as gateway:
        trajectory = gateway.home(0)
        status, body, _ = await asyncio.wait_for(gateway.say("hello", f"/t/{trajectory}"), 60.0)
        assert (status, body["error"]["code"]) == (504, "engine_timeout")
        assert "within the 1 s that the call had left" in body["error"]["message"]
        assert gateway.calls() == [1, 1]
        # So little time is no mark against the engine.
        assert gateway.upstreams[1].health.error is None
        assert gateway.figures()[1].failures == 1
        assert {each.in_flight for each in gateway.figures()} == {0}


async def test_queueing_for_the_first_place_has_a_limit_of_its_own() -> None:
    clock, held = HeldClock(), asyncio.Event()

    async def script(request: ScriptedRequest) -> str:
        await held.wait()
        return "ok"

    limits = {"upstream_timeout": 30.0}
    async with fleet(script, concurrency=1, queue_seconds=100.0, clock=clock, serve=limits) as gateway:
        first = asyncio.create_task(gateway.say("a"))
        await until(lambda: len(gateway.engine.requests) == 1)
        second = asyncio.create_task(gateway.say("b"))
        await until(lambda: gateway.figures()[0].waiting == 1)
        clock.advance(90.0)
        held.set()
        assert (await first)[0] == 200
        assert (await second)[0] == 200


def first_tokens_within(monkeypatch: pytest.MonkeyPatch, *seconds: float) -> None:
    """The limit of each try, one after the other: short where an engine stalls, and long where it does not, so that no
    busy machine makes it stall.
    """
    left = iter(seconds)

    def limited(given: float | None, asked: Any) -> Any:
        assert given == 600.0
        return begun_within(next(left), asked)

    for module in (answer, resubmit):
        monkeypatch.setattr(module, "begun_within", limited)


@pytest.mark.parametrize("tokens", ["engine", "token-in", "none"])
async def test_another_engine_is_asked_where_the_first_token_does_not_come(
    tokens: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_tokens_within(monkeypatch, 0.1, 600.0)
    async with fleet(STALLED, "fine", tokens=tokens, first_token_seconds=600.0) as gateway:
        trajectory = gateway.home(0)
        assert await streamed(gateway, trajectory) == "fine"
        (step,) = gateway.steps(trajectory)
        assert step.metadata["failed_tries"] == [[gateway.upstreams[0].address, "engine_timeout"]]
        assert [each.failures for each in gateway.figures()] == [1, 0]


async def test_the_caller_is_told_where_no_engine_begins() -> None:
    async with fleet(STALLED, first_token_seconds=0.2) as gateway:
        status, body, _ = await gateway.chat({"messages": HELLO, "stream": True}, "/t/t1")
        assert (status, body["error"]["code"]) == (504, "engine_timeout")
        assert "no token within 0.2 s" in body["error"]["message"]
        (exchange,) = gateway.pool.list_exchanges("t1")
        assert exchange.error is not None
        assert exchange.error["code"] == "engine_timeout"


async def test_a_piece_of_a_cut_reply_that_does_not_begin_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first_tokens_within(monkeypatch, 600.0, 1.0, 600.0)
    replies = [ScriptedReply(text="a", finish_reason="abort"), STALLED, ScriptedReply(text="b")]
    async with fleet(replies, tokens="token-in", first_token_seconds=600.0) as gateway:
        assert await streamed(gateway) == "ab"
        assert gateway.calls() == [3]
        assert len(gateway.steps("t1")) == 1


async def test_a_reply_that_comes_whole_is_not_held_to_it() -> None:
    async with fleet(ScriptedReply(text="ok", first_token_delay=0.2), first_token_seconds=0.01) as gateway:
        status, body, _ = await gateway.say("hello")
        assert (status, body["choices"][0]["message"]["content"]) == (200, "ok")


@asynccontextmanager
async def answering(*pieces: Delta | float) -> AsyncIterator[AsyncIterator[Delta]]:
    """These deltas, with so many seconds between."""

    async def deltas() -> AsyncIterator[Delta]:
        for piece in pieces:
            if isinstance(piece, Delta):
                yield piece
            else:
                await asyncio.sleep(piece)

    yield deltas()


async def test_what_opens_a_stream_is_no_token() -> None:
    seen = []
    with pytest.raises(FirstTokenError):
        async with begun_within(0.05, answering(Delta(), Delta(), 600.0, Delta(text="late"))) as deltas:
            async for delta in deltas:
                seen.append(delta)
    assert len(seen) == 2


async def test_after_the_first_token_it_may_take_its_time() -> None:
    async with begun_within(0.02, answering(Delta(ids=[1]), 0.1, Delta(text="b"), Delta())) as deltas:
        assert [(delta.ids, delta.text) async for delta in deltas] == [([1], ""), (None, "b"), (None, "")]


@pytest.mark.parametrize(
    ("able", "source", "by_ids", "stream", "early"),
    [
        ({}, "engine", False, True, True),
        ({}, "engine", False, False, False),
        ({"stream_ids": False}, "engine", False, True, False),
        ({"stream_ids": False}, "none", False, True, True),
        ({"stream_ids": False}, "token-in", True, True, True),
        ({"stream_ids": False, "stream_generate": False}, "token-in", True, True, False),
    ],
)
def test_which_replies_show_their_first_token(
    able: dict[str, bool], source: Any, by_ids: bool, stream: bool, early: bool
) -> None:
    class Asked:
        prompt = None

        def __init__(self) -> None:
            self.stream = stream

    class Call:
        prompt_ids = [1] if by_ids else None
        request = Asked()

        def __init__(self) -> None:
            self.source = source

    call: Any = Call()
    assert begins_early(call, Capabilities(ids=True, token_in=True, **able)) is early
