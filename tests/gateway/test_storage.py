"""What a conversation takes in the pool where the engine's template strips the thinking of earlier turns."""

from __future__ import annotations

from typing import Any

from agentworld.engines.tokenizer import byte_tokenizer
from agentworld.records import Step
from agentworld.testing import ScriptedRequest

from .harness import running

TURNS = 50
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
CALL = '<tool_call>\n{"name": "look", "arguments": {"at": %d}}\n</tool_call>'


def script(request: ScriptedRequest) -> str:
    """As agents do: about 250 ids a reply, half of them thinking; calls in even turns."""
    thought = f"<think>\nthought {request.call}: {'hm ' * 40}so\n</think>\n\n"
    return thought + (CALL % request.call if request.call % 2 == 0 else f"answer {request.call}: {'so ' * 35}yes")


def unique_ids(steps: list[Step]) -> int:
    """How many ids are left where each shared beginning counts once."""
    sequences = sorted([*(step.prompt_ids or []), *(step.response_ids or [])] for step in steps)
    before: list[int] = []
    total = 0
    for ids in sequences:
        shared = next((at for at, (one, other) in enumerate(zip(before, ids, strict=False)) if one != other), None)
        total += len(ids) - (min(len(before), len(ids)) if shared is None else shared)
        before = ids
    return total


async def test_a_template_that_strips_thinking_stores_little_more_than_what_is_new() -> None:
    async with running(script) as gateway:
        messages: list[Any] = [{"role": "user", "content": "Begin. " + "rules " * 40}]
        for turn in range(TURNS):
            _, body, _ = await gateway.chat({"messages": messages, "tools": TOOLS}, "/t/t1")
            messages.append(body["choices"][0]["message"])
            seen = f"seen {turn}: " + "what the tool says " * 12
            for call in messages[-1].get("tool_calls") or []:
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": seen})
            if turn % 2:
                messages.append({"role": "user", "content": f"and {turn}? " + "please tell " * 20})
        steps = gateway.steps("t1")
        assert len(steps) == TURNS
        # The template strips: a user turn forks, a tool turn goes on.
        assert [step.fork_reason for step in steps[1:]] == [None, "template"] * (TURNS // 2 - 1) + [None]
        last = byte_tokenizer().decode(steps[-1].prompt_ids)
        assert (last.count("thought 48"), last.count("thought 3:")) == (1, 0)
        stats = gateway.pool.stats()
        flat = sum(len(step.prompt_ids or []) + len(step.response_ids or []) for step in steps)
        unique = unique_ids(steps)
        assert stats.tokens_flat == flat
        assert unique < flat / 10
        assert stats.tokens_stored <= 1.3 * unique
