"""Calls that clients send again: they find their own trajectory, and one of both replies counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentworld.gateway.retries import MAX_EQUAL, Retries
from agentworld.pool import open_store
from agentworld.testing import ScriptedReply, ScriptedRequest

from .harness import Harness, running, until

RETRY = {"x_stainless_retry_count": "1"}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def ask(gateway: Harness, messages: list[Any], path: str = "", **headers: str) -> tuple[str, Any]:
    """Trajectory and reply."""
    status, body, sent = await gateway.chat({"messages": messages}, path, **headers)
    assert status == 200, body
    return sent["x-agentworld-trajectory"], body["choices"][0]["message"]


async def test_a_retry_takes_no_other_rollouts_place() -> None:
    async with running("same") as gateway:
        first, reply = await ask(gateway, [user("roll")])
        second, _ = await ask(gateway, [user("roll")])
        turn = [user("roll"), reply, user("next")]
        assert (await ask(gateway, turn))[0] == first
        assert (await ask(gateway, turn, **RETRY))[0] == first
        assert (await ask(gateway, turn))[0] == second
        # Another key is another client.
        assert (await ask(gateway, turn, authorization="Bearer other", **RETRY))[0] not in (first, second)
        steps = {step.step_id: step for step in gateway.steps(first)}
        (again,) = [step for step in steps.values() if step.supersedes]
        assert steps[again.supersedes or ""].excluded_reason == "superseded"
        assert all(step.excluded_reason is None for step in gateway.steps(second))


async def test_a_first_turn_is_retried_in_its_trajectory() -> None:
    failed = ScriptedReply(status=500, error_body={"error": {"message": "died"}})
    async with running([failed, "ok", "ok", "ok"]) as gateway:
        status, _, headers = await gateway.say("go")
        assert status == 502
        trajectory, _ = await ask(gateway, [user("go")], **RETRY)
        assert trajectory == headers["x-agentworld-trajectory"]
        # The same once more is another rollout, and so is a retry of what never came here.
        others = {(await ask(gateway, [user("go")]))[0], (await ask(gateway, [user("lost")], **RETRY))[0]}
        assert len(others - {trajectory}) == 2


async def test_a_retry_of_an_ended_trajectory_begins_anew() -> None:
    async with running("ok") as gateway:
        first, _ = await ask(gateway, [user("go")])
        gateway.pool.complete_trajectory(first, "finished")
        assert (await ask(gateway, [user("go")], **RETRY))[0] != first


def test_who_waits_is_found_before_who_was_answered() -> None:
    retries = Retries()
    for name in ("a", "b", "c"):
        retries.asked(b"k", "d", name)
    retries.answered(b"k", "d", "a")
    assert retries.find(b"k", "d") == "b"
    retries.asked(b"k", "d", "b")
    assert retries.find(b"k", "d") == "c"
    for name in ("c", "b"):
        retries.answered(b"k", "d", name)
    assert retries.find(b"k", "d") == "b"
    assert retries.find(b"other", "d") is None
    retries.answered(b"k", "unknown", "a")


def test_what_is_remembered_is_bounded() -> None:
    retries = Retries(limit=2)
    for name in ("a", "b", "c"):
        retries.asked(b"k", name, name)
    assert (len(retries), retries.find(b"k", "a"), retries.find(b"k", "c")) == (2, None, "c")
    for number in range(MAX_EQUAL):
        retries.asked(b"k", "c", str(number))
    assert retries.find(b"k", "c") == "0"


def test_equal_calls_count_each() -> None:
    retries = Retries(limit=10)
    for body in ("a", "b", "c"):
        for number in range(4):
            retries.asked(b"k", body, f"{body}{number}")
            retries.asked(b"k", body, f"{body}{number}")
    retries.answered(b"k", "b", "b0")
    assert (len(retries), retries.find(b"k", "a"), retries.find(b"k", "b")) == (2, None, "b1")
    retries.asked(b"k", "d", "d")
    retries.asked(b"k", "e", "e")
    assert (len(retries), retries.find(b"k", "c")) == (4, "c0")
    retries.asked(b"k", "f", "f")
    assert (len(retries), retries.find(b"k", "b")) == (4, None)


@pytest.mark.parametrize("path", ["/t/t1", ""])
async def test_a_call_that_its_retry_overtook_is_superseded(path: str) -> None:
    held = asyncio.Event()

    async def script(request: ScriptedRequest) -> str:
        if request.call == 0:
            await held.wait()
        return f"reply {request.call}"

    store = open_store("memory://")
    async with running(script, pool=store) as gateway:
        original = asyncio.create_task(ask(gateway, [user("go")], path))
        await until(lambda: len(gateway.engine.requests) == 1)
        trajectory, reply = await ask(gateway, [user("go")], path, **RETRY)
        held.set()
        assert (await original)[0] == trajectory
        retry, late = gateway.steps(trajectory)
        assert (retry.response_message.text, late.response_message.text) == ("reply 1", "reply 0")
        assert (retry.excluded_reason, retry.supersedes) == (None, None)
        assert (late.excluded_reason, late.supersedes, late.fork_reason) == ("superseded", None, "retry")
        assert late.metadata["superseded_by"] == retry.step_id
        # The conversation goes on from the retry, here and in a process that reads the pool anew.
        await ask(gateway, [user("go"), reply, user("on")], f"/t/{trajectory}")
        assert gateway.steps(trajectory)[2].parent_step_id == retry.step_id
    async with running("later", pool=store) as gateway:
        await ask(gateway, [user("go")], f"/t/{trajectory}", x_stainless_retry_count="2")
        assert gateway.steps(trajectory)[3].supersedes == retry.step_id


async def test_asking_the_same_again_later_is_no_late_original() -> None:
    async with running("ok") as gateway:
        await ask(gateway, [user("go")], "/t/t1", **RETRY)
        await ask(gateway, [user("go")], "/t/t1")
        assert [step.excluded_reason for step in gateway.steps("t1")] == [None, None]


DIED = ScriptedReply(status=503, error_body={"error": {"message": "busy"}})


@pytest.mark.parametrize("path", ["/t/t1", ""])
@pytest.mark.parametrize("first_is_slow", [True, False])
async def test_the_retry_of_a_failed_call_leaves_its_equals_alone(path: str, first_is_slow: bool) -> None:
    held = asyncio.Event()

    async def script(request: ScriptedRequest) -> str | ScriptedReply:
        if request.call == 0 and first_is_slow:
            await held.wait()
        return DIED if request.call == 1 else f"reply {request.call}"

    async with running(script) as gateway:
        first = asyncio.create_task(ask(gateway, [user("go")], path))
        await until(lambda: len(gateway.engine.requests) == 1)
        if not first_is_slow:
            await first
        status, _, headers = await gateway.chat({"messages": [user("go")]}, path)
        assert status == 503
        retried, _ = await ask(gateway, [user("go")], path, **RETRY)
        held.set()
        trajectory, reply = await first
        assert retried == headers["x-agentworld-trajectory"]
        assert (trajectory == retried) == bool(path)
        steps = [step for name in dict.fromkeys((trajectory, retried)) for step in gateway.steps(name)]
        assert len(steps) == 2
        assert [(step.excluded_reason, step.supersedes) for step in steps] == [(None, None)] * 2
        # The first goes on as if nothing had been.
        await ask(gateway, [user("go"), reply, user("on")], f"/t/{trajectory}")
        own = next(step for step in steps if step.response_message.text == "reply 0")
        assert gateway.steps(trajectory)[-1].parent_step_id == own.step_id


async def test_the_retry_of_a_call_that_was_left_supersedes_what_there_was_of_it() -> None:
    async def script(request: ScriptedRequest) -> ScriptedReply:
        return ScriptedReply(text="a long reply", token_delay=0.02 if request.call == 1 else 0.0)

    async with running(script) as gateway:
        client = gateway.client("/t/t1")

        async def stream(pieces: int | None, headers: dict[str, str] | None = None) -> None:
            events = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "go"}], stream=True, extra_headers=headers
            )
            seen = 0
            async for _ in events:
                seen += 1
                if seen == pieces:
                    break
            await events.close()

        await stream(None)
        await stream(3)
        await until(lambda: gateway.gateway.in_flight == 0)
        await stream(None, {"x-stainless-retry-count": "1"})
        first, left, again = gateway.steps("t1")
        assert (first.excluded_reason, left.finish_reason) == (None, "abort")
        assert again.supersedes == left.step_id


def test_failures_are_found_before_who_waits_and_are_not_waited_for_long() -> None:
    now = [0.0]
    retries = Retries(clock=lambda: now[0])
    for name in ("a", "b", "c"):
        retries.asked(b"k", "d", name)
    retries.failed(b"k", "d", "b")
    retries.failed(b"k", "d", "a")
    assert retries.find(b"k", "d") == "a"
    retries.asked(b"k", "d", "a")
    assert retries.find(b"k", "d") == "b"
    now[0] = 200.0
    assert retries.find(b"k", "d") == "c"
    now[0] = 2000.0
    assert retries.find(b"k", "d") is None
