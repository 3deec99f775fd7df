"""Several gateways on one pool: calls that name no trajectory, and retries, find theirs wherever they arrive.

Each gateway has the pool's file open by itself, as processes have.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agentworld.capture import recorder
from agentworld.pool import open_store
from agentworld.testing.scripted_engine import Script, ScriptedReply
from tests.gateway.harness import Harness, running, until


@asynccontextmanager
async def process(folder: Path, script: Script = "ok", **more: Any) -> AsyncIterator[Harness]:
    pool = open_store(f"sqlite:///{folder / 'pool.db'}")
    try:
        async with running(script, pool=pool, **more) as harness:
            yield harness
    finally:
        pool.close()


@asynccontextmanager
async def two(folder: Path, script: Script = "ok", **more: Any) -> AsyncIterator[tuple[Harness, Harness]]:
    async with process(folder, script, **more) as first, process(folder, script, **more) as second:
        yield first, second


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def ask(harness: Harness, messages: list[dict[str, Any]], key: str = "k", retry: int = 0) -> str:
    """Call, and add the reply; returns the trajectory."""
    headers = {"authorization": f"Bearer {key}", "x-stainless-retry-count": str(retry)}
    status, body, seen = await harness.chat({"messages": messages}, **headers)
    assert status == 200, body
    messages.append({"role": "assistant", "content": body["choices"][0]["message"]["content"]})
    return str(seen["x-agentworld-trajectory"])


@pytest.mark.parametrize("tokens", ["engine", "token-in"])
async def test_a_conversation_goes_on_in_any_process(tmp_path: Path, tokens: str) -> None:
    async with two(tmp_path, lambda request: f"reply {len(request.prompt_ids)}", tokens=tokens) as gateways:
        messages = [user("hello")]
        seen = set()
        for turn in range(6):
            seen.add(await ask(gateways[turn % 2], messages))
            messages.append(user(f"more {turn}"))
        assert len(seen) == 1
        steps = gateways[0].steps(seen.pop())
        assert [step.fork_reason for step in steps] == [None] * 6
        assert [step.parent_step_id for step in steps] == [None, *(step.step_id for step in steps[:-1])]
        if tokens == "token-in":
            assert [step.metadata["prompt"] for step in steps] == ["rendered", *["bridged"] * 5]


async def test_a_conversation_goes_on_after_a_restart(tmp_path: Path) -> None:
    messages = [user("hello")]
    async with process(tmp_path) as harness:
        first = await ask(harness, messages)
    async with process(tmp_path) as harness:
        assert await ask(harness, [*messages, user("more")]) == first
        # Others who say the same are others, and an ended trajectory is not gone on with.
        assert await ask(harness, [*messages, user("more")], key="other") != first
        harness.pool.complete_trajectory(first, "finished")
    async with process(tmp_path) as harness:
        assert await ask(harness, [*messages, user("more")]) != first


async def test_an_opening_that_others_share_joins_nobody(tmp_path: Path) -> None:
    async with two(tmp_path) as (first, second):
        one = await ask(first, [user("hello")])
        assert await ask(second, [user("hello")]) != one
        assert await ask(second, [user("hello"), {"role": "assistant", "content": "not ours"}, user("x")]) != one


async def test_equal_rollouts_are_gone_on_with_once_each(tmp_path: Path) -> None:
    async with two(tmp_path) as (first, second):
        begun = [await ask(first, [user("hello")]) for _ in range(3)]
        said = [user("hello"), {"role": "assistant", "content": "ok"}, user("more")]
        went_on = [await ask(second, [*said]) for _ in range(3)]
        assert went_on == begun
        assert [step.fork_reason for step in second.steps()] == [None] * 6


async def test_the_deepest_reply_tells_equal_beginnings_apart(tmp_path: Path) -> None:
    async with two(tmp_path) as (first, second):
        begun = [await ask(first, [user("hello")]) for _ in range(2)]
        said = [user("hello"), {"role": "assistant", "content": "ok"}, user("more")]
        assert await ask(second, said) == begun[0]
        # The first process waits with both of its own; the second turn, which it has not seen, says which it is.
        assert await ask(first, [*said, user("and more")]) == begun[0]


async def test_a_retry_elsewhere_supersedes_the_answered_call(tmp_path: Path) -> None:
    async with two(tmp_path) as (first, second):
        messages = [user("hello")]
        trajectory = await ask(first, [*messages])
        assert await ask(second, [*messages], retry=1) == trajectory
        original, retry = first.steps(trajectory)
        assert (retry.supersedes, retry.fork_reason) == (original.step_id, "retry")
        assert original.excluded_reason == "superseded"


@pytest.mark.parametrize("named", [False, True])
async def test_a_retry_elsewhere_of_a_failed_call_leaves_its_equals_alone(tmp_path: Path, named: bool) -> None:
    replies = iter(["ok", ScriptedReply(status=500, error_body="broken")])
    path = "/t/mine" if named else ""
    async with process(tmp_path, lambda _: next(replies)) as first, process(tmp_path, "again") as second:
        answered = await first.say("hello", path)
        failed = await first.say("hello", path)
        assert (answered[0], failed[0]) == (200, 502)
        _, _, seen = await second.say("hello", path, **{"x-stainless-retry-count": "1"})
        assert seen["x-agentworld-trajectory"] == failed[2]["x-agentworld-trajectory"]
        assert [step.excluded_reason for step in second.steps()] == [None, None]


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("original_ends_first", [False, True])
async def test_a_retry_elsewhere_while_the_original_is_in_flight(
    tmp_path: Path, named: bool, original_ends_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the two is superseded, whichever comes last, and both are in one trajectory."""
    monkeypatch.setattr(recorder, "ANNOUNCE_SECONDS", 0.01)
    go_on = [asyncio.Event(), asyncio.Event()]

    def script(number: int) -> Script:
        async def answer(_: Any) -> str:
            await go_on[number].wait()
            return f"from {number}"

        return answer

    path = "/t/mine" if named else ""
    async with process(tmp_path, script(0)) as first, process(tmp_path, script(1)) as second:
        original = asyncio.create_task(first.say("hello", path))
        await until(lambda: bool(first.engine.requests))
        if not named:
            await until(lambda: len(_marks(first)) == 1)
        retry = asyncio.create_task(second.say("hello", path, **{"x-stainless-retry-count": "1"}))
        await until(lambda: bool(second.engine.requests))
        for number in (0, 1) if original_ends_first else (1, 0):
            go_on[number].set()
            await (original, retry)[number]
        (_, _, one), (_, _, other) = await original, await retry
        assert one["x-agentworld-trajectory"] == other["x-agentworld-trajectory"]
        steps = {step.response_message.content: step for step in first.steps() if step.response_message}
        assert steps["from 0"].excluded_reason == "superseded"
        assert steps["from 1"].excluded_reason is None


def _marks(harness: Harness) -> list[Any]:
    """What the pool has of the calls in flight."""
    from agentworld.capture.marks import call_mark

    retries = harness.gateway.retries
    return [
        mark
        for (key, body) in retries._served
        for mark in harness.pool.find_marks([call_mark(key, body)])
        if mark.said == "asked"
    ]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_trajectory_that_another_process_made_in_another_group_takes_no_reply(
    tmp_path: Path, stream: bool
) -> None:
    go_on = asyncio.Event()

    async def slow(_: Any) -> str:
        await go_on.wait()
        return "from afar"

    async with process(tmp_path, slow) as first, process(tmp_path) as second:
        path, body = "/t/mine/g/gA/v1/chat/completions", {"messages": [user("hello")], "stream": stream}
        original = asyncio.create_task(_posted(first, path, body))
        await until(lambda: bool(first.engine.requests))
        assert (await second.say("hello", "/t/mine/g/gB"))[0] == 200
        go_on.set()
        status, said = await original
        # Before it says that the reply is done.
        assert "meanwhile: it is in group 'gB', not 'gA'" in said
        assert (status, '"finish_reason":"stop"' in said) == (200 if stream else 409, False)
        (step,) = first.steps("mine")
        assert step.response_message is not None
        assert step.response_message.content == "ok"
        (letter,) = first.pool.dead_letters()
        assert "from afar" in letter.record
        errors = [(each.error or {}).get("code") for each in first.pool.list_exchanges("mine")]
        assert sorted(errors, key=str) == [None, "conflict"]


async def _posted(harness: Harness, path: str, body: dict[str, Any]) -> tuple[int, str]:
    async with harness.http.post(harness.url + path, json=body) as response:
        return response.status, await response.text()


async def test_a_step_on_its_way_hides_none_that_another_process_stored(tmp_path: Path) -> None:
    """Else the next turn would not find what it continues, and be a fork."""
    async with two(tmp_path, lambda request: f"reply {request.call}") as (first, second):
        messages = [user("hello")]
        for harness in (first, second):
            status, body, _ = await harness.chat({"messages": messages}, "/t/t1")
            assert status == 200
            messages += [{"role": "assistant", "content": body["choices"][0]["message"]["content"]}, user("on")]
        # As while a call of a sub-agent is being stored by the first process.
        session = first.gateway.sessions._sessions["t1"]
        session._known.add("stp_on_its_way")
        session.on_their_way.add("stp_on_its_way")
        assert (await first.chat({"messages": messages}, "/t/t1"))[0] == 200
        one, other, last = first.steps("t1")
        assert (other.parent_step_id, last.parent_step_id) == (one.step_id, other.step_id)
        assert last.fork_reason is None
