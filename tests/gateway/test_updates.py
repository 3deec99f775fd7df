"""Weights that change while an engine speaks: cut replies go on, as one step that says which weights sampled what."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest

from agentworld.records import Policy, VersionSpan
from agentworld.testing import ScriptedReply, ScriptedRequest

from .clocks import HeldClock
from .fleet import Fleet, fleet, silence
from .harness import until

HELLO: list[Any] = [{"role": "user", "content": "hello"}]


def cut(text: str, **more: Any) -> ScriptedReply:
    """A reply that the engine cuts at its end."""
    return ScriptedReply(text=text, finish_reason="abort", **more)


async def streamed(gateway: Fleet, path: str = "/t/t1", **body: Any) -> tuple[str, str | None, Any]:
    """Text, finish reason and usage of a streamed call."""
    text, finish, usage = "", None, None
    async for event in await gateway.client(path).chat.completions.create(
        model="m", messages=HELLO, stream=True, stream_options={"include_usage": True}, **body
    ):
        usage = event.usage or usage
        for choice in event.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
    return text, finish, usage


@pytest.mark.parametrize("stream", [False, True])
async def test_a_cut_reply_goes_on_and_is_one_step(stream: bool) -> None:
    async with fleet(["not yet"], tokens="token-in") as gateway:
        engine = gateway.engine
        version = iter((3, 4, 4, 5))

        def script(request: ScriptedRequest) -> ScriptedReply:
            engine.set_policy(next(version))
            return [cut("one "), cut("two "), cut(""), ScriptedReply(text="three")][request.call]

        engine.script = script
        if stream:
            text, finish, usage = await streamed(gateway)
            counts = (usage.prompt_tokens, usage.completion_tokens)
        else:
            status, body, _ = await gateway.say("hello", "/t/t1")
            assert status == 200
            text, finish = body["choices"][0]["message"]["content"], body["choices"][0]["finish_reason"]
            counts = (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"])
        assert (text, finish) == ("one two three", "stop")
        (step,) = gateway.steps("t1")
        assert len(gateway.pool.list_exchanges("t1")) == 1
        first, second, third, last = engine.requests
        sampled = [call.sampled_ids[0] for call in (first, second, third, last)]
        assert step.response_ids == [*sampled[0], *sampled[1], *sampled[2], *sampled[3]]
        assert step.prompt_ids == first.prompt_ids[0]
        # Each piece was asked for with all that came before it.
        assert second.prompt_ids[0] == [*first.prompt_ids[0], *sampled[0]]
        assert last.prompt_ids[0] == [*first.prompt_ids[0], *sampled[0], *sampled[1], *sampled[2]]
        assert step.response_logprobs is not None
        assert len(step.response_logprobs) == len(step.response_ids)
        assert step.version_spans == (VersionSpan(0, 3), VersionSpan(4, 4), VersionSpan(8, 5))
        assert step.policy is not None
        assert step.policy.version == 3
        assert counts == (len(step.prompt_ids or []), len(step.response_ids))
        assert step.excluded_reason is None
        assert step.finish_reason == "stop"
        assert step.metadata["resubmitted"] == 3
        assert gateway.figures()[0].resubmitted == 3


async def test_an_engine_that_says_nothing_of_its_weights_is_stamped_piece_by_piece() -> None:
    """vLLM itself names no version, so what the pool said at each dispatch holds."""
    async with fleet("?", tokens="token-in") as gateway:
        engine, pool = gateway.engine, gateway.pool
        pool.set_policy(Policy("scripted", "run", 7))

        def script(request: ScriptedRequest) -> ScriptedReply:
            if request.call == 1:
                return ScriptedReply(text="bc")
            pool.set_policy(Policy("scripted", "run", 8))
            gateway.gateway.state._read_at = 0.0
            return cut("a")

        engine.script = script
        silence(engine)
        status, body, _ = await gateway.say("hello", "/t/t1")
        assert (status, body["choices"][0]["message"]["content"]) == (200, "abc")
        (step,) = gateway.steps("t1")
        assert step.version_spans == (VersionSpan(0, 7), VersionSpan(1, 8))
        assert step.policy == Policy("scripted", "run", 7)


async def test_weights_of_another_run_cannot_share_a_reply() -> None:
    async with fleet("?", tokens="token-in") as gateway:
        pool = gateway.pool
        pool.set_policy(Policy("scripted", "before", 7))

        def script(request: ScriptedRequest) -> ScriptedReply:
            if request.call:
                return ScriptedReply(text="anew")
            pool.set_policy(Policy("scripted", "after", 0))
            gateway.gateway.state._read_at = 0.0
            return cut("a")

        gateway.engine.script = script
        silence(gateway.engine)
        status, body, _ = await gateway.say("hello", "/t/t1")
        assert (status, body["choices"][0]["message"]["content"]) == (200, "anew")
        (step,) = gateway.steps("t1")
        assert step.policy == Policy("scripted", "after", 0)
        assert step.version_spans == ()
        assert step.response_ids == gateway.engine.requests[1].sampled_ids[0]


async def test_what_is_left_is_asked_for() -> None:
    async with fleet([cut("abc"), cut("de"), ScriptedReply(text="fghijk")], tokens="token-in") as gateway:
        body = {"messages": HELLO, "max_tokens": 8, "min_tokens": 4, "seed": 11, "temperature": 0.5}
        status, reply, _ = await gateway.chat(body, "/t/t1")
        assert status == 200
        assert reply["choices"][0]["message"]["content"] == "abcdefgh"
        assert reply["choices"][0]["finish_reason"] == "length"
        asked = [call.body for call in gateway.engine.requests]
        assert [each["max_tokens"] for each in asked] == [8, 5, 3]
        assert [each["min_tokens"] for each in asked] == [4, 1, 0]
        assert [each["seed"] for each in asked] == [11, 12, 13]
        assert {each["temperature"] for each in asked} == {0.5}
        (step,) = gateway.steps("t1")
        assert (step.sampling.max_tokens, step.sampling.min_tokens, step.sampling.seed) == (8, 4, 11)


@pytest.mark.parametrize(
    ("tokens", "more"),
    [
        ("engine", {}),
        ("engine", {"n": 2}),
        ("token-in", {"n": 2}),
        ("token-in", {"presence_penalty": 0.5}),
        ("token-in", {"frequency_penalty": -0.5}),
    ],
    ids=str,
)
async def test_what_cannot_be_gone_on_with_is_made_anew(tokens: str, more: dict[str, Any]) -> None:
    def script(request: ScriptedRequest) -> ScriptedReply:
        return cut("half ") if request.call == 0 else ScriptedReply(text="whole")

    async with fleet(script, tokens=tokens) as gateway:
        status, body, _ = await gateway.chat({"messages": HELLO, **more}, "/t/t1")
        assert status == 200
        assert {each["message"]["content"] for each in body["choices"]} == {"whole"}
        steps = gateway.steps("t1")
        assert len(steps) == more.get("n", 1)
        assert {step.finish_reason for step in steps} == {"stop"}
        assert len(gateway.pool.list_exchanges("t1")) == 1
        assert gateway.calls() == [2]
        assert all(each.healthy for each in gateway.figures())


async def test_what_the_client_has_seen_and_cannot_go_on_stays_cut() -> None:
    async with fleet([cut("half "), "never"]) as gateway:
        text, finish, _ = await streamed(gateway)
        assert (text, finish) == ("half ", "abort")
        (step,) = gateway.steps("t1")
        assert step.excluded_reason == "aborted"
        assert gateway.calls() == [1]


@pytest.mark.parametrize("tokens", ["engine", "token-in"])
async def test_an_engine_that_always_cuts_is_left_in_the_end(tokens: str) -> None:
    async with fleet(cut(""), tokens=tokens) as gateway:
        status, body, _ = await gateway.say("hello", "/t/t1")
        assert (status, body["error"]["code"]) == (503, "engine_aborted")
        assert len(gateway.engine.requests) == 17
        assert gateway.steps("t1") == []
        (exchange,) = gateway.pool.list_exchanges("t1")
        assert exchange.error is not None


@pytest.mark.parametrize("stream", [False, True])
async def test_a_cut_reply_waits_for_the_end_of_the_update(stream: bool) -> None:
    clock = HeldClock()
    async with fleet("?", tokens="token-in", clock=clock) as gateway:
        pool, state = gateway.pool, gateway.gateway.state

        def script(request: ScriptedRequest) -> ScriptedReply:
            if request.call == 0:
                pool.set_paused(True)
                state._read_at = 0.0
                return cut("before ")
            return ScriptedReply(text="after")

        gateway.engine.script = script
        call = asyncio.create_task(streamed(gateway) if stream else gateway.say("hello", "/t/t1"))  # type: ignore[arg-type]
        await until(lambda: len(gateway.engine.requests) == 1 and state.in_flight == 0)
        # It waits longer than a new call would, and counts as none in flight, as nothing of it is at an engine.
        for _ in range(100):
            clock.advance(1.0)
            await asyncio.sleep(0)
        assert gateway.calls() == [1]
        assert not call.done()
        pool.set_paused(False)

        async def tick() -> None:
            while not call.done():
                clock.advance(0.5)
                await asyncio.sleep(0.001)

        await asyncio.wait_for(tick(), 100)
        result = await call
        text = result[0] if stream else result[1]["choices"][0]["message"]["content"]
        assert text == "before after"
        (step,) = gateway.steps("t1")
        assert step.excluded_reason is None
        assert state.in_flight == 0


async def test_a_piece_that_finds_the_engine_busy_is_asked_for_again() -> None:
    away = ScriptedReply(status=503, error_body={"error": {"message": "loading weights"}})
    async with fleet([cut("a"), away, away, ScriptedReply(text="b")], tokens="token-in") as gateway:
        assert (await streamed(gateway))[0] == "ab"
        (step,) = gateway.steps("t1")
        assert step.response_ids == [
            *gateway.engine.requests[0].sampled_ids[0],
            *gateway.engine.requests[3].sampled_ids[0],
        ]


@pytest.mark.parametrize("seconds", [600.0, 2.0])
async def test_a_piece_that_never_comes_ends_the_call(seconds: float) -> None:
    """After 16 tries, or when the call's time is over."""

    def script(request: ScriptedRequest) -> ScriptedReply:
        return ScriptedReply(status=503, error_body={"error": "gone"}) if request.call else cut("a")

    async with fleet(script, tokens="token-in", serve={"upstream_timeout": seconds}) as gateway:
        with pytest.raises(openai.APIError):
            await streamed(gateway)
        assert gateway.calls() == [17 if seconds == 600.0 else 4]
        assert gateway.steps("t1") == []
        (exchange,) = gateway.pool.list_exchanges("t1")
        assert exchange.error is not None
        assert exchange.error["code"] == ("engine_unreachable" if seconds == 600.0 else "engine_timeout")


async def test_a_client_that_leaves_between_two_pieces_has_the_first_on_record() -> None:
    clock = HeldClock()
    async with fleet([cut("before "), "after"], tokens="token-in", clock=clock) as gateway:
        client = gateway.client("/t/t1")
        stream = await client.chat.completions.create(model="m", messages=HELLO, stream=True)
        seen = ""
        async for event in stream:
            seen += event.choices[0].delta.content or ""
            if seen.startswith("before"):
                break
        await stream.close()
        await until(lambda: gateway.gateway.in_flight == 0)
        (step,) = gateway.steps("t1")
        assert (step.finish_reason, step.readiness) == ("abort", "excluded")
        assert step.response_ids == gateway.engine.requests[0].sampled_ids[0]
        assert gateway.calls() == [1]
