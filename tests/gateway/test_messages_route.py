"""The Anthropic route end to end: what Claude Code and its like see, and what is on record."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from agentworld.gateway.http import Http
from agentworld.gateway.routes import find_route
from agentworld.records import NewTrajectory
from agentworld.testing import ScriptedReply
from agentworld.testing.wire_faults import WireFaults

from .harness import Harness, running

MODES = ["engine", "token-in"]
TOOLS = [{"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}]
LOOK = '<think>\nhm\n</think>\n\nI look.\n<tool_call>\n{"name": "look", "arguments": {"a": 1}}\n</tool_call>'


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **more}


async def post(
    gateway: Harness, body: dict[str, Any], path: str = "/t/t1/v1/messages", **headers: str
) -> tuple[int, Any, Any]:
    """Status, body (events for a stream) and headers."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    body = {"model": "claude", "max_tokens": 100, **body}
    async with gateway.http.post(gateway.url + path, json=body, headers=names) as response:
        if response.content_type != "text/event-stream":
            return response.status, await response.json(), response.headers
        lines = (await response.text()).split("\n")
        return response.status, [json.loads(line[6:]) for line in lines if line.startswith("data: ")], response.headers


def message_of(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The reply in a stream of events."""
    content: list[dict[str, Any]] = []
    for event in events:
        if event["type"] == "content_block_start":
            content.append(dict(event["content_block"]))
        elif event["type"] == "content_block_delta":
            delta = dict(event["delta"])
            kind = delta.pop("type")
            if kind == "input_json_delta":
                content[-1]["input"] = json.loads(delta["partial_json"])
            else:
                ((name, piece),) = delta.items()
                content[-1][name] += piece
    return {"role": "assistant", "content": content}


@pytest.mark.parametrize("tokens", MODES)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_conversation_with_tools_goes_on_from_its_tokens(tokens: str, stream: bool) -> None:
    """As Claude Code does it: the billing line changes, cache marks move, thinking comes back with its signature."""
    async with running([LOOK, LOOK, "done"], tokens=tokens) as gateway:
        conversation: list[dict[str, Any]] = [user(text("reminder"), text("go"))]
        for turn in range(3):
            system = [text(f"x-anthropic-billing-header: v=2; cch={turn}{turn};"), text("Be brief.")]
            conversation[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
            body = {"messages": conversation, "system": system, "tools": TOOLS, "stream": stream}
            status, answer, _ = await post(gateway, body)
            assert status == 200
            message = message_of(answer) if stream else {"role": "assistant", "content": answer["content"]}
            stop = answer[-2]["delta"]["stop_reason"] if stream else answer["stop_reason"]
            assert stop == ("tool_use" if turn < 2 else "end_turn")
            conversation[-1]["content"][-1].pop("cache_control")
            conversation.append(message)
            for block in message["content"]:
                if block["type"] == "tool_use":
                    assert block["input"] == {"a": 1}
                    result = {"type": "tool_result", "tool_use_id": block["id"], "content": f"seen {turn}"}
                    conversation.append(user(result))
        kinds = [block["type"] for block in conversation[1]["content"]]
        assert kinds == ["thinking", "text", "tool_use"]
        steps = gateway.steps("t1")
    assert [step.dialect for step in steps] == ["anthropic"] * 3
    assert [step.parent_step_id for step in steps] == [None, steps[0].step_id, steps[1].step_id]
    for step, after in itertools.pairwise(steps):
        assert step.prompt_ids is not None
        assert step.response_ids is not None
        assert after.prompt_ids is not None
        before = [*step.prompt_ids, *step.response_ids]
        assert after.prompt_ids[: len(before)] == before
        assert after.fork_reason is None
    assert steps[0].prompt_messages is not None
    assert steps[0].prompt_messages[0].content == "Be brief."
    assert steps[0].response_message is not None
    assert steps[0].response_message.reasoning == "hm"


async def test_broken_arguments_make_the_round_trip() -> None:
    broken = ScriptedReply(text='<tool_call>\n{"name": "look", "arguments": {"a": "b}\n</tool_call>')
    async with running([broken, "sorry"], tokens="token-in") as gateway:
        first = user(text("go"))
        _, answer, _ = await post(gateway, {"messages": [first], "tools": TOOLS})
        (block,) = answer["content"]
        assert list(block["input"]) == ["_raw_arguments"]
        result = {"type": "tool_result", "tool_use_id": block["id"], "content": "no", "is_error": True}
        turn = {"role": "assistant", "content": [block]}
        status, _, _ = await post(gateway, {"messages": [first, turn, user(result)], "tools": TOOLS})
        assert status == 200
        one, two = gateway.steps("t1")
        assert two.parent_step_id == one.step_id
        assert two.fork_reason is None


async def test_the_stream_ends_after_the_step_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(LOOK) as gateway:
        stored = gateway.gateway.recorder.store
        seen: list[str] = []

        async def store(*arguments: Any) -> Any:
            steps = await stored(*arguments)
            seen.append("stored")
            return steps

        chunk = Http.chunk

        async def watched(http: Http, data: bytes, *, last: bool = False) -> None:
            seen.extend(name for name in ("tool_use", "message_delta", "message_stop") if name.encode() in data)
            await chunk(http, data, last=last)

        monkeypatch.setattr(gateway.gateway.recorder, "store", store)
        monkeypatch.setattr(Http, "chunk", watched)
        await post(gateway, {"messages": [user(text("go"))], "tools": TOOLS, "stream": True})
        assert seen == ["stored", "tool_use", "message_delta", "message_stop"]


async def test_stop_sequences_and_limits_end_as_the_api_says() -> None:
    async with running("one END two") as gateway:
        body = {"messages": [user(text("go"))], "stop_sequences": ["END"]}
        _, answer, _ = await post(gateway, body)
        assert (answer["stop_reason"], answer["stop_sequence"]) == ("stop_sequence", "END")
        assert answer["content"] == [text("one ")]
        _, answer, _ = await post(gateway, {"messages": [user(text("go"))], "max_tokens": 2})
        assert (answer["stop_reason"], answer["usage"]["output_tokens"]) == ("max_tokens", 2)


@pytest.mark.parametrize("tokens", MODES)
@pytest.mark.parametrize("context", [None, 400])
async def test_a_limit_over_the_context_is_what_the_context_leaves(tokens: str, context: int | None) -> None:
    """Claude Code asks for up to 64,000 tokens, whatever the model."""
    async with running("x" * 1000, tokens=tokens, context=context, engine={"max_model_len": 400}) as gateway:
        body = {"messages": [user(text("go"))], "max_tokens": 64_000}
        status, answer, _ = await post(gateway, body)
        assert (status, answer["stop_reason"]) == (200, "max_tokens")
        (step,) = gateway.steps("t1")
        assert len(step.prompt_ids or []) + len(step.response_ids or []) == 400
        assert step.metadata["max_tokens_asked"] == 64_000
        status, answer, _ = await post(gateway, {"messages": [user(text("go" * 400))], "max_tokens": 64_000})
        assert (status, answer["error"]["type"]) == (400, "invalid_request_error")
        assert answer["error"]["message"].startswith("prompt is too long: ")
        # The chat route keeps its own rule: what is asked for must fit.
        status, _, _ = await gateway.chat({"messages": [{"role": "user", "content": "go"}], "max_tokens": 64_000})
        assert status == 400


async def test_errors_come_in_the_shape_of_the_api() -> None:
    async with running(ScriptedReply(status=500, error_body="down")) as gateway:
        for body, path, status, kind in (
            ({"messages": []}, "/v1/messages", 400, "invalid_request_error"),
            ({"messages": [user({"type": "image", "source": {}})]}, "/v1/messages", 400, "invalid_request_error"),
            ({"messages": [user(text("go"))]}, "/v1/messages", 502, "api_error"),
            ({"messages": [user(text("go"))], "stream": True}, "/v1/messages", 502, "api_error"),
            ({"messages": []}, "/t/%20/v1/messages", 400, "invalid_request_error"),
            ({"messages": []}, "/v1/messages/batches", 404, "not_found_error"),
        ):
            got, answer, _ = await post(gateway, body, path)
            assert (got, answer["type"], answer["error"]["type"]) == (status, "error", kind), path
        assert gateway.steps() == []


async def test_an_engine_that_breaks_off_ends_the_stream_with_an_error() -> None:
    reply = ScriptedReply(text="a" * 50, faults=WireFaults(drop_after=5))
    async with running(reply) as gateway:
        _, events, _ = await post(gateway, {"messages": [user(text("go"))], "stream": True})
        assert events[0]["type"] == "message_start"
        assert (events[-1]["type"], events[-1]["error"]["type"]) == ("error", "api_error")
        assert gateway.steps("t1") == []


async def test_a_session_of_claude_code_is_a_trajectory() -> None:
    session = "92677671-55cf-4994-a683-757f0f92b53c"
    async with running() as gateway:
        body = {"messages": [user(text("go"))]}
        for agent in ({}, {"X_Claude_Code_Agent_Id": "a1b2c3d4e5"}):
            _, _, headers = await post(gateway, body, "/v1/messages", X_Claude_Code_Session_Id=session, **agent)
            assert headers["x-agentworld-trajectory"] == f"claude-code-{session}"
        assert [step.agent for step in gateway.steps(f"claude-code-{session}")] == [None, "a1b2c3d4e5"]
        # What was made for the trajectory comes first, and a value that is no id is not ours to refuse.
        gateway.pool.create_trajectory(NewTrajectory(trajectory_id="t1", agent="claude"))
        for headers in ({"X_Api_Key": "aw-t-t1"}, {"X_AgentWorld_Trajectory": "t1"}):
            _, _, sent = await post(gateway, body, "/v1/messages", X_Claude_Code_Session_Id=session, **headers)
            assert sent["x-agentworld-trajectory"] == "t1"
        assert {step.agent for step in gateway.steps("t1")} == {"claude"}
        status, _, sent = await post(gateway, body, "/v1/messages", X_Claude_Code_Session_Id="no/id/at all")
        assert (status, sent["x-agentworld-trajectory"][:4]) == (200, "trj_")


async def test_tokens_are_counted_where_the_gateway_renders() -> None:
    body = {"messages": [user(text("go"))], "tools": TOOLS, "system": "Be brief."}
    async with running(tokens="token-in") as gateway:
        status, counted, _ = await post(gateway, body, "/v1/messages/count_tokens")
        assert status == 200
        _, answer, _ = await post(gateway, body)
        assert counted == {"input_tokens": answer["usage"]["input_tokens"]}
        assert len(gateway.steps()) == 1
    async with running(tokens="engine") as gateway:
        status, answer, _ = await post(gateway, body, "/v1/messages/count_tokens")
        assert (status, answer["error"]["type"]) == (404, "not_found_error")


async def test_the_probe_finds_the_gateway_alive() -> None:
    async with running() as gateway:
        for path in ("/", "/t/t1", "/t/t1/v1"):
            async with gateway.http.head(gateway.url + path) as response:
                assert response.status == 200


@pytest.mark.parametrize(
    ("path", "name", "trajectory", "group"),
    [
        ("/v1/messages", "/v1/messages", None, None),
        ("/v1/v1/messages", "/v1/messages", None, None),
        ("/t/t1/messages", "/v1/messages", "t1", None),
        ("/t/t1/v1/v1/messages/count_tokens", "/v1/messages/count_tokens", "t1", None),
        ("/t/t1/g/g1/chat/completions", "/v1/chat/completions", "t1", "g1"),
        ("/t/t1/g/g1/v1/chat/completions/", "/v1/chat/completions", "t1", "g1"),
        ("/t/v1/models", "/v1/models", "v1", None),
    ],
)
def test_base_urls_with_and_without_v1(path: str, name: str, trajectory: str | None, group: str | None) -> None:
    method = "GET" if name == "/v1/models" else "POST"
    route = find_route(method, path)
    assert (route.name, route.trajectory, route.group) == (name, trajectory, group)
