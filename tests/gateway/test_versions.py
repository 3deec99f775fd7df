"""Which weights sampled what: of several choices, of pieces, of what was left early; and where two runs would meet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from agentworld.engines.backend import Job, Wire
from agentworld.engines.detokenize import StopStrings
from agentworld.engines.replies import Tokens
from agentworld.records import Policy, Step
from agentworld.testing import ScriptedEngine, ScriptedReply, ScriptedRequest, scripted_engine

from .clocks import HeldClock
from .fleet import Fleet, fleet, silence
from .harness import until
from .test_updates import HELLO, cut, streamed


def spans(step: Step) -> list[tuple[int, int]]:
    """Where each version begins, also where the step has one only."""
    assert step.policy is not None
    found = [(span.start, span.version) for span in step.version_spans] or [(0, step.policy.version)]
    assert found[0] == (0, step.policy.version)
    return found


def change(engine: ScriptedEngine, index: int, position: int, version: int, call: int = 0) -> None:
    """Have the engine change its weights before a token of a choice of its call."""
    play = engine._play

    async def changing(job: Job, choice: int, reply: ScriptedReply) -> AsyncGenerator[Tokens, None]:
        mine = choice == index and len(engine.requests) == call + 1
        count = 0
        if mine and not position:
            engine.set_policy(version, engine.policy.run)
        async for tokens in play(job, choice, reply):
            yield tokens
            count += 1
            if mine and count == position:
                engine.set_policy(version, engine.policy.run)

    engine._play = changing  # type: ignore[method-assign]


async def ask(gateway: Fleet, stream: bool, **body: Any) -> None:
    """A call at trajectory t1, its reply read to the end."""
    body = {"messages": HELLO, "stream": stream, "stream_options": {"include_usage": True} if stream else None, **body}
    async with gateway.http.post(gateway.url + "/t/t1/v1/chat/completions", json=body) as response:
        await response.read()
        assert response.status == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tokens", ["engine", "token-in"])
async def test_each_choice_has_the_version_that_sampled_it(tokens: str, stream: bool) -> None:
    async with fleet("abcd", tokens=tokens) as gateway:
        gateway.engine.set_policy(3)
        change(gateway.engine, 1, 0, 4)
        change(gateway.engine, 2, 2, 5)
        await ask(gateway, stream, n=3)
        assert [spans(step) for step in gateway.steps("t1")] == [[(0, 3)], [(0, 4)], [(0, 4), (2, 5)]]
        assert {step.excluded_reason for step in gateway.steps("t1")} == {None}


async def test_a_body_names_no_version_that_not_all_its_choices_have() -> None:
    async with fleet("abcd") as gateway:
        engine = gateway.engine
        engine.set_policy(3, "r")
        change(engine, 1, 0, 4)
        body = {"prompt": "x", "n": 2}
        async with gateway.http.post(engine.url + "/v1/completions", json=body) as response:
            differ = await response.json()
        async with gateway.http.post(engine.url + "/v1/completions", json=body) as response:
            agree = await response.json()
        assert [choice["version_spans"] for choice in differ["choices"]] == [[[0, 3]], [[0, 4]]]
        assert ("policy_version" in differ, differ["policy_run"]) == (False, "r")
        assert agree["policy_version"] == 4


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("pieces", "versions", "expected"),
    [
        (["", "three"], [3, 4], [(0, 4)]),
        (["one", "", "three"], [3, 4, 5], [(0, 3), (3, 5)]),
        (["one", "", "three"], [3, 4, 3], [(0, 3)]),
    ],
)
async def test_a_piece_without_ids_has_no_span(
    pieces: list[str], versions: list[int], expected: list[tuple[int, int]], stream: bool
) -> None:
    async with fleet("?", tokens="token-in") as gateway:
        engine = gateway.engine

        def script(request: ScriptedRequest) -> ScriptedReply:
            engine.set_policy(versions[request.call])
            text = pieces[request.call]
            return cut(text) if request.call < len(pieces) - 1 else ScriptedReply(text=text)

        engine.script = script
        await ask(gateway, stream)
        (step,) = gateway.steps("t1")
        assert (spans(step), step.excluded_reason) == (expected, None)


async def test_a_piece_whose_weights_change_is_told_apart_and_its_count_says_nothing_of_weights() -> None:
    async with fleet([cut("abcd"), ScriptedReply(text="ef")], tokens="token-in") as gateway:
        gateway.engine.set_policy(3)
        change(gateway.engine, 0, 2, 4)
        await ask(gateway, True)
        (step,) = gateway.steps("t1")
        assert (spans(step), step.excluded_reason) == ([(0, 3), (2, 4)], None)


@pytest.mark.parametrize("new", [(2, "new"), (10, "new"), (2, "old"), (2, None), (10, None)])
@pytest.mark.parametrize("stream", [False, True])
async def test_pieces_of_which_the_engine_says_another_run_are_not_joined(
    stream: bool, new: tuple[int, str | None]
) -> None:
    """Though the pool has not heard of it yet. A version that is lower is one of another run, too."""
    async with fleet("?", tokens="token-in") as gateway:
        engine = gateway.engine

        def script(request: ScriptedRequest) -> ScriptedReply:
            engine.set_policy(*(new if request.call else (9, "old")))
            return ScriptedReply(text="two") if request.call else cut("one ")

        engine.script = script
        if stream:
            with pytest.raises(Exception, match="weights of another run"):
                await streamed(gateway)
            assert gateway.steps("t1") == []
            (exchange,) = gateway.pool.list_exchanges("t1")
            assert (exchange.error or {})["code"] == "engine_aborted"
        else:
            await ask(gateway, stream)
            (step,) = gateway.steps("t1")
            assert step.policy == Policy("scripted", new[1] or "default", new[0])
            assert (spans(step), step.response_ids) == ([(0, new[0])], engine.requests[-1].sampled_ids[0])


async def test_a_piece_without_ids_may_be_followed_by_another_run() -> None:
    async with fleet("?", tokens="token-in") as gateway:
        engine = gateway.engine

        def script(request: ScriptedRequest) -> ScriptedReply:
            engine.set_policy(*((2, "new") if request.call else (9, "old")))
            return ScriptedReply(text="two") if request.call else cut("")

        engine.script = script
        assert (await streamed(gateway))[0] == "two"
        (step,) = gateway.steps("t1")
        assert (step.policy, spans(step), step.excluded_reason) == (Policy("scripted", "new", 2), [(0, 2)], None)


async def leave(gateway: Fleet, clock: HeldClock, after: str) -> Step:
    """Ask, leave once the text has come, and return what is on record."""
    stream = await gateway.client("/t/t1").chat.completions.create(model="m", messages=HELLO, stream=True)

    async def tick() -> None:
        while True:
            clock.advance(0.5)
            await asyncio.sleep(0.001)

    ticking, seen = asyncio.create_task(tick()), ""
    async for event in stream:
        seen += event.choices[0].delta.content or ""
        if after in seen:
            break
    await stream.close()
    await until(lambda: gateway.gateway.in_flight == 0)
    ticking.cancel()
    (step,) = gateway.steps("t1")
    assert step.excluded_reason == "aborted"
    return step


async def test_who_leaves_in_a_later_piece_has_on_record_which_weights_sampled_what() -> None:
    """Of an engine that says nothing of its weights."""
    clock = HeldClock()
    async with fleet("?", tokens="token-in", clock=clock) as gateway:
        gateway.pool.set_policy(Policy("scripted", "run", 7))
        silence(gateway.engine)

        def script(request: ScriptedRequest) -> ScriptedReply:
            if request.call:
                return ScriptedReply(text="after that more and more", token_delay=0.05)
            gateway.pool.set_policy(Policy("scripted", "run", 8))
            gateway.gateway.state._read_at = 0.0
            return cut("before ")

        gateway.engine.script = script
        assert spans(await leave(gateway, clock, "after")) == [(0, 7), (7, 8)]


@pytest.mark.parametrize("tokens", ["engine", "token-in"])
async def test_who_leaves_after_the_weights_changed_has_that_on_record(tokens: str) -> None:
    clock = HeldClock()
    reply = ScriptedReply(text="abcdefghijklmnop", token_delay=0.05)
    async with fleet(reply, tokens=tokens, clock=clock) as gateway:
        gateway.engine.set_policy(7)
        change(gateway.engine, 0, 2, 8)
        step = await leave(gateway, clock, "abcd")
        assert spans(step) == [(0, 7), (2, 8)]
        assert 4 <= len(step.response_ids or ()) < 16


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stop_string_across_a_cut_ends_ids_and_text_alike(stream: bool) -> None:
    pieces = [cut("hello ST"), ScriptedReply(text="OP and more"), "third"]
    async with fleet(pieces, tokens="token-in") as gateway:
        if stream:
            text, finish, usage = await streamed(gateway, stop=["STOP"])
            counted = usage.completion_tokens
        else:
            _, body, _ = await gateway.chat({"messages": HELLO, "stop": ["STOP"]}, "/t/t1")
            choice = body["choices"][0]
            text, finish, counted = choice["message"]["content"], choice["finish_reason"], body["usage"]
            counted = counted["completion_tokens"]
        (step,) = gateway.steps("t1")
        assert (text, finish) == ("hello", "stop")
        assert bytes(step.response_ids or ()) == b"hello STOP"  # As from an engine that finds it.
        assert len(step.response_logprobs or ()) == counted == 10
        assert (step.finish_reason, step.excluded_reason, step.metadata["stop_reason"]) == ("stop", None, "STOP")
        # What the engine had sampled beyond it, as far as it came here, is not lost.
        if not stream:
            assert bytes(each for each in step.metadata["beyond_stop"] if each < 256) == b" and more"
        following = [*HELLO, {"role": "assistant", "content": text}, {"role": "user", "content": "next"}]
        await gateway.chat({"messages": following}, "/t/t1")
        after = gateway.steps("t1")[-1]
        whole = [*(step.prompt_ids or ()), *(step.response_ids or ())]
        assert (after.prompt_ids or [])[: len(whole)] == whole
        assert (after.fork_reason, after.metadata["prompt"]) == (None, "bridged")
        assert b"more" not in bytes(each for each in after.prompt_ids or () if each < 256)


async def test_a_stop_string_that_ends_where_the_engine_cuts_ends_the_reply() -> None:
    async with fleet([cut("a ST"), cut("OP"), "never"], tokens="token-in") as gateway:
        text, finish, usage = await streamed(gateway, stop=["STOP"])
        (step,) = gateway.steps("t1")
        assert (text, finish, usage.completion_tokens) == ("a", "stop", 6)
        assert (bytes(step.response_ids or ()), gateway.calls(), step.excluded_reason) == (b"a STOP", [2], None)


@pytest.mark.parametrize("count", [1, 2])
async def test_an_engine_that_goes_on_after_a_stop_string_leaves_no_ids_that_the_text_has_not(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As vLLM does before `min_tokens`. One reply is cut there, several are told by a sum of tokens and stay."""

    class Deaf(StopStrings):
        def feed(self, piece: str) -> bool:
            return False

    monkeypatch.setattr(scripted_engine, "StopStrings", Deaf)
    async with fleet("a STOP b", tokens="token-in") as gateway:
        _, body, _ = await gateway.chat({"messages": HELLO, "stop": ["STOP"], "n": count}, "/t/t1")
        assert {choice["message"]["content"] for choice in body["choices"]} == {"a"}
        ids = {bytes(each for each in step.response_ids or () if each < 256) for step in gateway.steps("t1")}
        assert ids == {b"a STOP" if count == 1 else b"a STOP b"}
        reason = None if count == 1 else "quarantined: the engine went on after a stop string"
        assert {step.excluded_reason for step in gateway.steps("t1")} == {reason}


@pytest.mark.parametrize("tokens", ["engine", "token-in"])
async def test_an_engine_that_answers_twice_is_quarantined(tokens: str) -> None:
    """Though it gives no count that would disagree."""

    class Twice(Wire):
        def __init__(self) -> None:
            self.sent: list[bytes] = []

        def chunk(self, chunk: dict[str, Any]) -> list[bytes]:
            chunk.pop("usage", None)
            self.sent += (pieces := super().chunk(chunk))
            return pieces

        def end(self) -> list[bytes]:
            return [*self.sent, *super().end()]

    async with fleet("hi", tokens=tokens) as gateway:
        gateway.engine.wire = lambda job: Twice()  # type: ignore[method-assign]
        await streamed(gateway)
        (step,) = gateway.steps("t1")
        assert step.excluded_reason == "quarantined: the engine went on after the end of its reply"


async def test_ids_after_a_cut_are_quarantined_too() -> None:
    class GoingOn(Wire):
        def chunk(self, chunk: dict[str, Any]) -> list[bytes]:
            pieces = super().chunk(chunk)
            return pieces * 2 if any(choice["finish_reason"] for choice in chunk["choices"]) else pieces

    async with fleet([cut("ab"), ScriptedReply(text="c")], tokens="token-in") as gateway:
        wires = iter([GoingOn(), Wire()])
        gateway.engine.wire = lambda job: next(wires)  # type: ignore[method-assign]
        await ask(gateway, True)
        (step,) = gateway.steps("t1")
        assert step.excluded_reason is not None
        assert step.excluded_reason.startswith("quarantined: the engine went on after the end of its reply")
