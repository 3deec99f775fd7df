"""Histories that clients change on their way back, and ids that they use again, through the whole gateway."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from tests.engines.fakes.openai import OpenAIFake
from tests.gateway.harness import running
from tests.gateway.test_drivers import gateway

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALL = '<tool_call>\n{"name": "f", "arguments": {"b": 1, "a": [1, 2]}}\n</tool_call>'


def compact(call: dict[str, Any], **more: Any) -> dict[str, Any]:
    arguments = json.dumps(json.loads(call["function"]["arguments"]), separators=(",", ":"), sort_keys=True)
    return {**call, "function": {**call["function"], "arguments": arguments}, **more}


@pytest.mark.parametrize("tokens", ["engine", "token-in"])
@pytest.mark.parametrize("content", ["", None])
async def test_arguments_that_a_client_writes_anew_fork_nothing(tokens: str, content: str | None) -> None:
    """pydantic-ai, for one, writes them without spaces; what was sampled goes to the engine."""
    async with running([CALL, CALL, "done"], tokens=tokens) as harness:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
        for _ in range(3):
            status, body, _ = await harness.chat({"messages": messages, "tools": [TOOL]}, "/t/x")
            assert status == 200, body
            said = body["choices"][0]["message"]
            for call in said.get("tool_calls") or []:
                messages.append({"role": "assistant", "content": content, "tool_calls": [compact(call)]})
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": "r"})
        steps = harness.steps("x")
        assert [step.fork_reason for step in steps] == [None, None, None]
        for before, after in itertools.pairwise(steps):
            whole = [*before.prompt_ids, *before.response_ids]  # type: ignore[misc]
            assert after.prompt_ids[: len(whole)] == whole  # type: ignore[index]
            assert after.parent_step_id == before.step_id


@pytest.mark.parametrize("tokens", ["engine", "token-in"])
async def test_ids_that_are_used_again_each_turn_are_told_apart(tokens: str) -> None:
    async with running([CALL, CALL, "done"], tokens=tokens) as harness:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
        for turn in range(3):
            status, body, _ = await harness.chat({"messages": messages, "tools": [TOOL]}, "/t/x")
            assert status == 200, body
            for call in body["choices"][0]["message"].get("tool_calls") or []:
                messages.append({"role": "assistant", "tool_calls": [{**call, "id": "call_0"}]})
                messages.append({"role": "tool", "tool_call_id": "call_0", "content": f"result {turn}"})
        last = harness.steps("x")[-1]
        assert [message.content for message in last.prompt_messages or [] if message.role == "tool"] == [
            "result 0",
            "result 1",
        ]


async def test_ids_that_are_too_long_for_openai_are_shortened_on_the_way() -> None:
    long = "call_" + "x" * 100
    body = {
        "messages": [
            {"role": "user", "content": "go"},
            {
                "role": "assistant",
                "tool_calls": [{"id": long, "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": long, "content": "r"},
        ]
    }
    async with OpenAIFake() as fake, gateway("openai", fake) as running_gateway:
        status, answer = await running_gateway.post("/v1/chat/completions", body)
        assert status == 200, answer
        _, said, result = fake.asked[-1].body["messages"]
        assert said["tool_calls"][0]["id"] == result["tool_call_id"]
        assert len(result["tool_call_id"]) <= 40
        step = running_gateway.step()
        assert step.prompt_messages is not None
        assert step.prompt_messages[2].tool_call_id == long
