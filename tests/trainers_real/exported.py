"""A version with ids in every layout, and what its steps really were, for trainers to be compared with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from agentworld.curation.datasets.selecting import create_dataset
from agentworld.curation.exports import export_dataset
from agentworld.engines.builtin.pocket_tokenizer import POCKET_TOKENIZER_PATH
from agentworld.engines.chat_format import ChatFormat
from agentworld.engines.tokenizer import load_tokenizer
from agentworld.pool.memory import MemoryPool
from agentworld.pool.protocol import Pool
from agentworld.records import (
    Feedback,
    FunctionCall,
    MediaPart,
    Message,
    NewTrajectory,
    Policy,
    Reward,
    Selection,
    Splits,
    Step,
    TextPart,
    ToolCall,
)

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a town",
        "parameters": {
            "type": "object",
            "properties": {"town": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["town"],
        },
    },
}
TOKENIZER = load_tokenizer("pocket")
FORMAT = ChatFormat(TOKENIZER)
TRAIN = ("answer",)

LAYOUTS: dict[str, tuple[str, dict[str, Any]]] = {
    "sft": ("sft", {}),
    "sft-jsonl": ("sft", {"file_format": "jsonl"}),
    "sft-completion": ("sft", {"style": "prompt-completion"}),
    "sft-each": ("sft", {"expand": "each-step"}),
    "sft-images": ("sft", {"images": True}),
    "sft-verl": ("sft", {"style": "verl"}),
    "sft-tokens": ("sft-tokens", {}),
    "sft-answers": ("sft-tokens", {"train": TRAIN, "tokenizer": "pocket"}),
    "preference": ("preference", {"margin": 0.5}),
    "kto": ("kto", {}),
    "prm": ("prm", {"reward": "reward.progress"}),
    "prm-messages": ("prm", {"reward": "reward.progress", "style": "messages", "file_format": "jsonl"}),
    "rl-prompts": ("rl-prompts", {}),
    "steps": ("steps", {}),
}
# A picture of one pixel.
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c636060606000000005000167"
    "a45e7e0000000049454e44ae426082"
)


def says(text: str, reasoning: str, call: dict[str, Any] | None = None) -> Message:
    """A reply as the policy wrote it."""
    calls = ()
    if call is not None:
        calls = (ToolCall(id="call_1", function=FunctionCall(name="weather", arguments=json.dumps(call))),)
    return Message(role="assistant", content=text, reasoning=reasoning, tool_calls=calls)


def written(reply: Message) -> list[int]:
    """The ids that were sampled for a reply: its text as the model writes it, and the end of the turn."""
    parts = [f"<think>\n{reply.reasoning}\n</think>\n\n{reply.content}"]
    for call in reply.tool_calls:
        arguments = call.function.arguments
        parts.append(f'<tool_call>\n{{"name": "{call.function.name}", "arguments": {arguments}}}\n</tool_call>')
    return TOKENIZER.encode("".join(parts) + "<|im_end|>")


def taken(name: str, number: int, prompt: list[Message], reply: Message) -> Step:
    """A step with the ids that the model saw and sampled."""
    asked = [
        {
            "role": each.role,
            "content": each.content,
            **({"reasoning_content": each.reasoning} if each.reasoning is not None else {}),
            **({"tool_calls": [_call(call) for call in each.tool_calls]} if each.tool_calls else {}),
        }
        for each in prompt
    ]
    return Step(
        step_id=f"{name}-{number}",
        trajectory_id=name,
        prompt_messages=list(prompt),
        response_message=reply,
        tools=[TOOL],
        prompt_ids=FORMAT.render(asked, [TOOL]),
        response_ids=written(reply),
        token_source="token-in",
        vocabulary=TOKENIZER.digest.hex(),
        policy=Policy("pocket"),
        created_at=1000.0 + number,
    )


def _call(call: ToolCall) -> dict[str, Any]:
    return {"type": "function", "function": {"name": call.function.name, "arguments": call.function.arguments}}


def fill(pool: Pool) -> None:
    """Two runs with tools in one group, a talk of two turns, and a picture."""
    first = [Message(role="system", content="Be short."), Message(role="user", content="How is it in Ulm?")]
    for name, town, reward in (("good", "Ulm", 1.0), ("poor", "Bonn", 0.0)):
        call = says("", f"I look up {town}.", {"town": town, "days": 1})
        then = [*first, call, Message(role="tool", content="rain", tool_call_id="call_1")]
        steps = [taken(name, 0, first, call), taken(name, 1, then, says(f"Rain in {town}.", "It rains."))]
        task = {"task_id": "ulm", "task_set": "towns", "reference": "rain"}
        _put(pool, steps, reward, group_id="g", task=task)
    hello = says("Hello.", "A greeting.")
    again = [Message(role="user", content="Hi"), hello, Message(role="user", content="And bye")]
    steps = [taken("talk", 0, again[:1], hello), taken("talk", 1, again, says("Bye.", "They leave."))]
    _put(pool, steps, 1.0)
    picture = MediaPart(pool.put_media(PIXEL, "image/png"), "image/png")
    seen = Message(role="user", content=(TextPart("What is it?"), picture))
    _put(pool, [Step(step_id="seen-0", trajectory_id="seen", prompt_messages=[seen], tools=[TOOL],
                     response_message=says("A dot.", "Small."))], 1.0)  # fmt: skip
    pool.add_signals(
        [
            Feedback(kind="correction", step_id="talk-1", value={"role": "assistant", "content": "See you."}),
            *(Reward(step_id=f"good-{number}", name="progress", value=1.0 - number) for number in range(2)),
        ]
    )


def _put(pool: Pool, steps: list[Step], reward: float, **new: Any) -> None:
    pool.create_trajectory(NewTrajectory(trajectory_id=steps[0].trajectory_id, **new))
    assert [one.outcome for one in pool.append_steps(steps)] == ["stored"] * len(steps)
    pool.complete_trajectory(steps[0].trajectory_id, "finished", reward)


def export_all(folder: Path) -> dict[str, Any]:
    """Every layout in its folder under this one, a tokenizer, and the steps as they were, by id."""
    pool = MemoryPool()
    fill(pool)
    version = create_dataset(pool, "real", Selection(splits=Splits(near_duplicates=None)))
    for name, (layout, options) in LAYOUTS.items():
        export_dataset(pool, version.version, layout, folder / name, **options)
    tokenizer = folder / "tokenizer"
    tokenizer.mkdir()
    shutil.copy(POCKET_TOKENIZER_PATH, tokenizer / "tokenizer.json")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": 4096,
    }
    (tokenizer / "tokenizer_config.json").write_text(json.dumps(settings))
    steps = pool.list_steps(limit=100, include=("tokens", "messages")).items
    pool.close()
    return {step.step_id: step for step in steps}
