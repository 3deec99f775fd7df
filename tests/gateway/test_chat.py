"""The chat route end to end, with the official client: what agents see and what is on record."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import openai
import pytest

from agentworld.records import NewTrajectory, Policy
from agentworld.testing import ScriptedReply

from .harness import running, until

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
MODES = ["engine", "token-in"]


@pytest.mark.parametrize("tokens", MODES)
async def test_plain_and_streamed_replies_say_the_same(tokens: str) -> None:
    text = "<think>\nhm\n</think>\n\nfür 数 you"
    async with running(text, tokens=tokens) as gateway:
        client = gateway.client()
        plain = await client.chat.completions.create(model="scripted", messages=HELLO)
        message = plain.choices[0].message
        assert (message.content, message.model_dump()["reasoning_content"]) == ("für 数 you", "hm")
        assert plain.usage is not None
        content, reasoning, finish, usage = "", "", None, None
        events = await client.chat.completions.create(
            model="scripted", messages=HELLO, stream=True, stream_options={"include_usage": True}
        )
        async for event in events:
            if event.usage is not None:
                usage = event.usage
            for choice in event.choices:
                content += choice.delta.content or ""
                reasoning += getattr(choice.delta, "reasoning_content", "") or ""
                finish = choice.finish_reason or finish
        assert (content, reasoning, finish) == ("für 数 you", "hm", "stop")
        assert usage is not None
        assert usage.completion_tokens == plain.usage.completion_tokens
        first, second = gateway.steps()
        assert first.response_message == second.response_message


@pytest.mark.parametrize("tokens", MODES)
@pytest.mark.parametrize("stream", [False, True])
async def test_ids_on_record_are_those_of_the_engine(tokens: str, stream: bool, tmp_path: Path) -> None:
    log = tmp_path / "tokens.jsonl"
    async with running("<think>a</think>bé", tokens=tokens, engine={"log_tokens": log}) as gateway:
        client = gateway.client("/t/t1/g/g1")
        body: dict[str, Any] = {"model": "m", "messages": HELLO, "n": 2, "temperature": 0.7, "top_p": 0.9, "seed": 3}
        if stream:
            async for _ in await client.chat.completions.create(**body, stream=True):
                pass
        else:
            await client.chat.completions.create(**body)
        steps = gateway.steps("t1")
        (call,) = gateway.engine.requests
    logged = [json.loads(line) for line in log.read_text().splitlines()]
    assert [step.response_ids for step in steps] == call.sampled_ids == [entry["token_ids"] for entry in logged]
    for step in steps:
        assert step.prompt_ids == call.prompt_ids[0] == logged[0]["prompt_token_ids"]
        assert step.response_logprobs is not None
        assert step.response_ids is not None
        assert len(step.response_logprobs) == len(step.response_ids)
        assert step.logprob_space == "processed"
        assert step.excluded_reason is None
        assert step.group_id == "g1"
        assert step.sampling is not None
        assert (step.sampling.temperature, step.sampling.top_p, step.sampling.seed) == (0.7, 0.9, 3)
    assert len({step.exchange_id for step in steps}) == 1
    for name in ("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty"):
        assert name in call.body
    assert call.body["repetition_penalty"] == 1.0


async def test_tool_calls_come_through_with_their_ids() -> None:
    tools: Any = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    text = '<tool_call>\n{"name": "look", "arguments": {"a": 1}}\n</tool_call>\n' * 2
    for tokens in MODES:
        async with running(text, tokens=tokens) as gateway:
            answer = await gateway.client("/t/t1").chat.completions.create(model="m", messages=HELLO, tools=tools)
            choice = answer.choices[0]
            assert choice.finish_reason == "tool_calls"
            assert choice.message.content is None
            calls = choice.message.tool_calls or []
            assert len({call.id for call in calls}) == 2
            (step,) = gateway.steps("t1")
            assert step.response_message is not None
            assert [call.id for call in step.response_message.tool_calls] == [call.id for call in calls]
            assert step.tools == tools


async def test_a_call_cut_by_the_limit_is_no_call() -> None:
    tools: Any = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    reply = ScriptedReply(text='<tool_call>\n{"name": "look", "arg', finish_reason="length")
    async with running(reply, tokens="token-in") as gateway:
        answer = await gateway.client().chat.completions.create(model="m", messages=HELLO, tools=tools)
        assert answer.choices[0].finish_reason == "length"
        assert not answer.choices[0].message.tool_calls


async def test_names_of_models() -> None:
    async with running() as gateway:
        assert [model.id for model in (await gateway.client().models.list()).data] == ["scripted"]
        await gateway.chat({"model": "gpt-9", "messages": HELLO}, "/t/t1")
        (step,) = gateway.steps("t1")
        assert (step.model, step.requested_model) == ("scripted", "gpt-9")
    async with running(serve={"strict_models": True}) as gateway:
        with pytest.raises(openai.NotFoundError) as caught:
            await gateway.client().chat.completions.create(model="gpt-9", messages=HELLO)
        assert caught.value.code == "model_not_found"
        assert gateway.steps() == []


async def test_identity_by_path_header_and_key() -> None:
    async with running() as gateway:
        _, _, headers = await gateway.say("a", "/t/from-path", X_AgentWorld_Trajectory="from-header")
        assert headers["x-agentworld-trajectory"] == "from-path"
        _, _, headers = await gateway.say(
            "b", X_AgentWorld_Trajectory="from-header", X_AgentWorld_Agent="claude", X_AgentWorld_Channel="val"
        )
        assert headers["x-agentworld-trajectory"] == "from-header"
        (step,) = gateway.steps("from-header")
        assert (step.agent, step.channel, headers["x-agentworld-step"]) == ("claude", "val", step.step_id)
        await gateway.say("c", Authorization="Bearer aw-t-from-key")
        assert len(gateway.steps("from-key")) == 1
        status, body, _ = await gateway.say("d", X_AgentWorld_Trajectory="no spaces")
        assert (status, body["error"]["param"]) == (400, "x-agentworld-trajectory")


async def test_a_conversation_without_identity_stays_one_trajectory() -> None:
    async with running(lambda request: f"reply {request.call}") as gateway:
        _, first, one = await gateway.say("same opening", Authorization="Bearer k1")
        _, second, two = await gateway.say("same opening", Authorization="Bearer k1")
        # A shared opening is no identity.
        assert one["x-agentworld-trajectory"] != two["x-agentworld-trajectory"]

        async def go_on(body: dict[str, Any], key: str) -> str:
            messages = [
                {"role": "user", "content": "same opening"},
                body["choices"][0]["message"],
                {"role": "user", "content": "on"},
            ]
            _, _, headers = await gateway.chat({"messages": messages}, Authorization=f"Bearer {key}")
            return str(headers["x-agentworld-trajectory"])

        assert await go_on(first, "k1") == one["x-agentworld-trajectory"]
        assert await go_on(second, "k1") == two["x-agentworld-trajectory"]
        # Another key, or an ended trajectory, is another conversation.
        assert await go_on(second, "k2") not in (one["x-agentworld-trajectory"], two["x-agentworld-trajectory"])
        gateway.pool.complete_trajectory(one["x-agentworld-trajectory"], "finished")
        assert await go_on(first, "k1") != one["x-agentworld-trajectory"]


async def test_equal_rollouts_without_identity_stay_apart() -> None:
    async with running("the same") as gateway:
        ids = [(await gateway.say("x"))[2]["x-agentworld-trajectory"] for _ in range(2)]
        messages = [*[{"role": "user", "content": "x"}], {"role": "assistant", "content": "the same"}]
        body = {"messages": [*messages, {"role": "user", "content": "on"}]}
        again = [(await gateway.chat(body))[2]["x-agentworld-trajectory"] for _ in range(2)]
        assert sorted(again) == sorted(ids)


async def test_a_trajectory_keeps_its_group_and_channel() -> None:
    async with running() as gateway:
        gateway.pool.create_trajectory(NewTrajectory(trajectory_id="t1", group_id="g1", channel="val", agent="mine"))
        await gateway.say("a", "/t/t1")
        (step,) = gateway.steps("t1")
        assert (step.group_id, step.channel, step.agent) == ("g1", "val", "mine")
        status, body, _ = await gateway.say("a", "/t/t1/g/g2")
        assert (status, body["error"]["code"]) == (409, "conflict")


async def test_a_late_call_is_answered_and_marked() -> None:
    async with running() as gateway:
        await gateway.say("a", "/t/t1")
        gateway.pool.complete_trajectory("t1", "finished")
        status, _, _ = await gateway.say("b", "/t/t1")
        assert status == 200
        assert [step.late for step in gateway.steps("t1")] == [False, True]
        assert gateway.pool.get_trajectory("t1").status == "finished"


async def test_policy_is_stamped_and_the_engine_knows_better() -> None:
    def script(request: Any) -> str:
        if request.call == 1:
            engine.set_policy(5)
        return "abc"

    async with running(script) as gateway:
        engine = gateway.engine
        gateway.pool.set_policy(Policy("scripted", "r1", 2))
        engine.set_policy(2, "r1")
        await gateway.say("a", "/t/t1")
        await gateway.say("b", "/t/t1")
        first, second = gateway.steps("t1")
        assert first.policy == Policy("scripted", "r1", 2)
        assert second.policy is not None
        assert second.policy.version == 5


async def test_weights_that_change_inside_a_reply_leave_spans() -> None:
    async with running(ScriptedReply(text="a" * 400, token_delay=0.001)) as gateway:
        client = gateway.client("/t/t1")
        seen = 0
        async for event in await client.chat.completions.create(model="m", messages=HELLO, stream=True):
            seen += bool(event.choices and event.choices[0].delta.content)
            if seen == 2:
                gateway.engine.set_policy(1)
        (step,) = gateway.steps("t1")
        assert step.policy is not None
        assert step.policy.version == 0
        assert [span.version for span in step.version_spans] == [0, 1]
        assert step.version_spans[0].start == 0
        assert 0 < step.version_spans[1].start < len(step.response_ids or [])


async def test_paused_calls_wait_and_then_are_refused() -> None:
    async with running(pause_wait=0.0) as gateway:
        gateway.pool.set_paused(True)
        status, body, headers = await gateway.say("a")
        assert (status, body["error"]["code"], headers["retry-after"]) == (503, "paused", "5")
    async with running(pause_wait=30.0) as gateway:
        gateway.pool.set_paused(True)
        call = asyncio.create_task(gateway.say("a"))
        await until(lambda: gateway.gateway.in_flight == 1)
        gateway.pool.set_paused(False)
        assert (await call)[0] == 200


async def test_a_retry_supersedes_and_a_repeat_does_not() -> None:
    async with running(lambda request: f"reply {request.call}") as gateway:
        await gateway.say("a", "/t/t1")
        await gateway.say("a", "/t/t1")
        await gateway.say("a", "/t/t1", X_Stainless_Retry_Count="1")
        first, second, third = gateway.steps("t1")
        assert (first.fork_reason, first.supersedes) == (None, None)
        assert (second.fork_reason, second.supersedes) == ("parallel", None)
        assert (third.fork_reason, third.supersedes) == ("retry", second.step_id)
        assert second.readiness == "excluded"
        assert first.readiness != "excluded"


async def test_a_subagent_attaches_to_its_own_conversation() -> None:
    async with running(lambda request: f"reply {request.call}") as gateway:

        async def turn(messages: list[Any]) -> list[Any]:
            _, body, _ = await gateway.chat({"messages": messages}, "/t/t1")
            return [*messages, body["choices"][0]["message"], {"role": "user", "content": "on"}]

        a = await turn([{"role": "system", "content": "A"}, *HELLO])
        b = await turn([{"role": "system", "content": "B"}, *HELLO])
        await turn(a)
        await turn(b)
        a1, b1, a2, b2 = gateway.steps("t1")
        assert (a2.parent_step_id, b2.parent_step_id) == (a1.step_id, b1.step_id)
        assert (b1.fork_reason, b2.fork_reason) == ("subagent", None)


async def test_developer_messages_reach_engines_as_system() -> None:
    async with running() as gateway:
        await gateway.chat({"messages": [{"role": "developer", "content": "be kind"}, *HELLO]}, "/t/t1")
        assert gateway.engine.requests[0].body["messages"][0]["role"] == "system"
        (step,) = gateway.steps("t1")
        assert step.prompt_messages is not None
        assert step.prompt_messages[0].role == "developer"


async def test_health_and_readiness() -> None:
    async with running() as gateway:
        async with gateway.http.get(gateway.url + "/healthz") as response:
            assert response.status == 200
        async with gateway.http.get(gateway.url + "/readyz") as response:
            body = await response.json()
            assert (response.status, body["ready"], body["models"][0]["tokens"]) == (200, True, "engine")
    async with running(upstream="http://127.0.0.1:9") as gateway, gateway.http.get(gateway.url + "/readyz") as response:
        body = await response.json()
        assert (response.status, body["ready"]) == (503, False)
        assert "nothing answers" in body["models"][0]["error"]
