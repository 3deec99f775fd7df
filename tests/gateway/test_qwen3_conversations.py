"""Fifty turns over Qwen3's real vocabulary, thinking on: each prompt is the turn before, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentworld.pool import open_store

from .harness import running
from .long_talk import TOOLS, agent, extending, needs_qwen3, qwen3, talk

TURNS = {False: 50, True: 16}
"""Plain and streamed."""


@pytest.mark.slow
@needs_qwen3
@pytest.mark.parametrize("stream", [False, True])
async def test_fifty_turns_extend_bit_for_bit(stream: bool) -> None:
    tokenizer, turns = qwen3(), TURNS[stream]
    settings = {"tokens": "token-in", "tokenizer": "qwen3", "name": "Qwen/Qwen3-8B"}
    scripted = {"tokenizer": tokenizer, "model": "Qwen/Qwen3-8B"}
    async with running(agent(7 + stream), engine=scripted, **settings) as gateway:
        await talk(gateway, "/t/trj_long", turns, seed=3, stream=stream)
        steps = gateway.steps("trj_long")
        assert len(steps) == turns
        assert extending(steps) == turns - 1
        assert {step.metadata["prompt"] for step in steps[1:]} == {"bridged"}
        assert all(step.excluded_reason is None for step in steps)
        for step, call in zip(steps, gateway.engine.requests, strict=True):
            assert (call.prompt_ids, call.sampled_ids) == ([step.prompt_ids], [step.response_ids])
        # Thinking on: every thought that was sampled is in the last prompt.
        last = steps[-1].prompt_ids or []
        assert last.count(tokenizer.convert_tokens_to_ids("<think>")) == turns - 1
        # The samples are none that the tokenizer would choose for their text, so nothing was encoded anew.
        assert any(tokenizer.encode(tokenizer.decode(step.response_ids)) != step.response_ids for step in steps)


@needs_qwen3
async def test_two_gateways_share_one_conversation(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/pool.db"
    settings = {"tokens": "token-in", "tokenizer": "qwen3"}
    stores = [open_store(address), open_store(address)]
    script = agent(11)
    async with (
        running(script, engine={"tokenizer": qwen3()}, pool=stores[0], **settings) as one,
        running(script, engine={"tokenizer": qwen3()}, pool=stores[1], **settings) as other,
    ):
        messages: list[dict[str, object]] = [{"role": "user", "content": "go"}]
        for turn in range(6):
            _, body, _ = await (one, other)[turn % 2].chat({"messages": messages, "tools": TOOLS}, "/t/t1")
            messages.append(body["choices"][0]["message"])
            calls = body["choices"][0]["message"].get("tool_calls") or []
            messages += [{"role": "tool", "tool_call_id": call["id"], "content": "seen"} for call in calls]
            messages += [] if calls else [{"role": "user", "content": "on"}]
        steps = other.steps("t1")
    async with running(script, engine={"tokenizer": qwen3()}, pool=stores[0], **settings) as again:
        await again.chat({"messages": messages, "tools": TOOLS}, "/t/t1")
        steps = again.steps("t1")
    assert (len(steps), extending(steps)) == (7, 6)
    for store in stores:
        store.close()


@needs_qwen3
@pytest.mark.scale
@pytest.mark.timeout(1800)
async def test_four_hundred_turns_extend_bit_for_bit() -> None:
    """Eight conversations of fifty turns, half of them streamed, with longer words: each turn counts."""
    settings = {"tokens": "token-in", "tokenizer": "qwen3"}
    extended = 0
    for seed in range(8):
        async with running(agent(100 + seed, 120), engine={"tokenizer": qwen3()}, **settings) as gateway:
            await talk(gateway, "/t/t1", 50, seed=seed, most=120, stream=seed % 2 == 1)
            extended += extending(gateway.steps("t1"))
    print(f"{extended} of {8 * 49} continued turns extend the turn before, bit for bit")
    assert extended == 8 * 49
