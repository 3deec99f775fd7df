"""Tool calls that come back rewritten: by Claude Code they are what was sampled, by others a changed history."""

from __future__ import annotations

from typing import Any

import pytest

from agentworld.gateway import create_gateway
from agentworld.pool import open_store
from agentworld.testing.app_server import AppServer

from .harness import Harness, running
from .test_messages_route import TOOLS, post, text, user

CALL = 'I look.\n<tool_call>\n{"name": "look", "arguments": {"a": "50", "b": "x  "}}\n</tool_call>'
SESSION = {"X_Claude_Code_Session_Id": "0b5dbd6c-7b1f-4c5e-9a52-6b3cf1c5a001"}


async def first(gateway: Harness) -> dict[str, Any]:
    """A reply with a call."""
    status, body, _ = await post(gateway, {"messages": [user(text("go"))], "tools": TOOLS}, **SESSION)
    assert status == 200, body
    return body


async def second(
    gateway: Harness, content: list[dict[str, Any]], changes: dict[str, Any], headers: dict[str, str]
) -> None:
    """What comes back: the reply with another call, and the call's result."""
    said = [{**block, **changes} if block["type"] == "tool_use" else block for block in content]
    result = {"type": "tool_result", "tool_use_id": said[-1]["id"], "content": "seen"}
    messages = [user(text("go")), {"role": "assistant", "content": said}, user(result)]
    status, body, _ = await post(gateway, {"messages": messages, "tools": TOOLS}, **headers)
    assert status == 200, body


REWRITTEN = {"input": {"c": False, "a": 50, "b": "x"}}


@pytest.mark.parametrize("tokens", ["engine", "token-in"])
async def test_a_call_rewritten_by_claude_code_is_the_call_that_was_sampled(tokens: str) -> None:
    async with running([CALL, "done"], tokens=tokens) as gateway:
        await second(gateway, (await first(gateway))["content"], REWRITTEN, SESSION)
        before, after = gateway.steps("t1")
    assert after.parent_step_id == before.step_id
    assert after.fork_reason is None
    assert after.metadata["restored_calls"] == 1
    assert "restored_calls" not in before.metadata
    assert after.prompt_messages is not None
    assert after.prompt_messages[1].tool_calls == before.response_message.tool_calls
    sequence = [*before.prompt_ids, *before.response_ids]
    assert after.prompt_ids[: len(sequence)] == sequence


async def test_a_call_that_comes_back_as_it_was_is_not_told() -> None:
    async with running([CALL, "done"]) as gateway:
        await second(gateway, (await first(gateway))["content"], {}, SESSION)
        assert "restored_calls" not in gateway.steps("t1")[1].metadata


async def test_a_call_rewritten_by_anyone_else_is_a_changed_history() -> None:
    async with running([CALL, "done"]) as gateway:
        await second(gateway, (await first(gateway))["content"], REWRITTEN, {})
        _, after = gateway.steps("t1")
    assert after.fork_reason == "history_rewritten"
    assert after.prompt_messages[1].tool_calls[0].function.arguments != '{"a": "50", "b": "x  "}'


@pytest.mark.parametrize("changes", [{"name": "listen"}, {"id": "toolu_other"}])
async def test_another_call_is_another_call(changes: dict[str, str]) -> None:
    async with running([CALL, "done"]) as gateway:
        await second(gateway, (await first(gateway))["content"], {**REWRITTEN, **changes}, SESSION)
        _, after = gateway.steps("t1")
    assert after.fork_reason == "history_rewritten"
    assert "restored_calls" not in after.metadata


async def test_a_gateway_that_did_not_serve_the_reply_knows_it_by_the_pool() -> None:
    pool = open_store("memory://")
    async with running([CALL, "done", "done"], pool=pool) as gateway:
        body = await first(gateway)
        async with AppServer(create_gateway(gateway.gateway.settings, pool)) as other:
            gateway.url = other.url
            await second(gateway, body["content"], REWRITTEN, SESSION)
        before, after = gateway.steps("t1")
    pool.close()
    assert (after.parent_step_id, after.fork_reason) == (before.step_id, None)


async def test_ids_that_several_replies_have_say_nothing() -> None:
    """An engine that numbers its calls from 0 each turn."""
    from agentworld.forest import Tip
    from agentworld.gateway.rewritten_calls import knows_all, restored
    from agentworld.records import FunctionCall, Message, ToolCall

    def said(arguments: str) -> Message:
        return Message(role="assistant", tool_calls=(ToolCall("call_0", FunctionCall("look", arguments)),))

    def tip(reply: Message) -> Tip:
        return Tip("stp", [b"k"], [reply], b"", None, 0, "stop", 0)

    sent = said('{"a": 3}')
    assert restored([tip(said('{"a": 1}')), tip(said('{"a": 2}'))], [sent]) == ([sent], 0)
    assert restored([tip(said('{"a": 1}'))], [sent]) == ([said('{"a": 1}')], 1)
    assert knows_all([tip(said("{}"))], [sent])
    assert not knows_all([], [sent])
