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
