"""Rollouts of a tool-using agent as training produces them, for measurements and tests: seeded, in numpy arrays.

Rollouts of one task share system prompt, tools and question. Each further turn's prompt is the whole sequence so far
and a tool's result; half of a turn's new ids are sampled, half come from the tool. Ids are uniform over a vocabulary of
151,643, which is the hardest case for storage; texts are English-like, code-like and JSON-like, about 4 characters an
id, with words as frequent as Zipf's law says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec
import numpy as np
import numpy.typing as npt

from agentworld.records import FunctionCall, Message, Policy, Sampling, Step, ToolCall, Usage

VOCABULARY = 151_643
OPENING_IDS = 1_500  # system prompt, tools and question
_CHARACTERS_PER_ID = 4
_STARTED = 1_750_000_000.0
_POLICY = Policy("qwen3-8b", "run-7", 12)
_SAMPLING = Sampling(temperature=1.0, top_p=1.0, max_tokens=2048, seed=7, stop=("</answer>",))
_SYLLABLES = tuple(
    a + b
    for a in ("b", "c", "d", "f", "gr", "h", "k", "l", "m", "n", "p", "qu", "r", "st", "t", "v", "")
    for b in ("a", "e", "i", "o", "u", "al", "er", "in", "on", "ed")
)
_TOOL_NAMES = ("read_file", "run_command", "search", "write_file")
_TEMPLATES = (
    '{{"path": "{0}/{1}.py", "line": {4}, "match": "{2}"}}\n',
    "    def {0}_{1}(self, {2}):\n        return self.{3}({2}, {4})\n",
    "{0} {1} {2} {3}. ",
    "{0}, {1} and {2} of the {3}; ",
    "The {0} {1} has {4} {2} when {3}. ",
    "-rw-r--r-- 1 {0} {0} {4} {1}_{2}.{3}\n",
    "[{4:08x}] {0}: {1} {2}\n",
)
_CORPUS = 1 << 20  # characters that texts are cut from


def tool_trajectories(
    tasks: int = 1, rollouts: int = 16, turns: int = 50, new_ids: int = 500, seed: int = 7, texts: bool = True
) -> Iterator[list[Step]]:
    """The steps of one trajectory after the other, task by task, in the order of its turns.

    `prompt_ids`, `response_ids` (uint32) and `response_logprobs` (float32) are views of arrays. Without `texts` steps
    have no messages and tools. Names are unique within a seed.
    """
    writer = _Writer(np.random.default_rng([seed, 1]))
    tools = _tools(writer) if texts else None
    system = Message(role="system", content=writer.text(3_000))
    for task in range(tasks):
        random = np.random.default_rng([seed, 2, task])
        opening = random.integers(0, VOCABULARY, OPENING_IDS, dtype=np.uint32)
        question = Message(role="user", content=writer.text(1_500))
        for rollout in range(rollouts):
            said = [system, question] if texts else None
            name = f"{seed}/{task}/{rollout}"
            yield _trajectory(name, f"task-{seed}-{task}", opening, said, tools, turns, new_ids, random, writer)


def flat_bytes(step: Step) -> int:
    """What one row of a flat table holds of the step: ids as uint32, log-probabilities as float32, messages as JSON."""
    arrays = (step.prompt_ids, step.response_ids, step.response_logprobs)
    said = step.prompt_messages
    text = b"" if said is None else msgspec.json.encode([*said, step.response_message])
    return sum(4 * len(array) for array in arrays if array is not None) + len(text)


def _trajectory(
    name: str,
    group: str,
    opening: npt.NDArray[np.uint32],
    said: list[Message] | None,
    tools: list[dict[str, Any]] | None,
    turns: int,
    new_ids: int,
    random: np.random.Generator,
    writer: _Writer,
) -> list[Step]:
    added = random.integers(0, VOCABULARY, turns * new_ids, dtype=np.uint32)
    ids = np.concatenate([opening, added])
    sampled = (new_ids + 1) // 2
    logprobs = (-random.exponential(0.4, turns * sampled)).astype(np.float32)
    steps: list[Step] = []
    for turn in range(turns):
        split = len(opening) + turn * new_ids
        reply = None
        if said is not None:
            reply = writer.reply(turn, sampled * _CHARACTERS_PER_ID)
        step_id = _name("stp", name, turn)
        steps.append(
            Step(
                step_id=step_id,
                trajectory_id=_name("trj", name),
                exchange_id=_name("exc", name, turn),
                group_id=group,
                parent_step_id=steps[-1].step_id if steps else None,
                agent="coder",
                model="qwen3-8b",
                requested_model="gpt-4.1",
                policy=_POLICY,
                dialect="chat",
                token_source="token-in",
                vocabulary="qwen3-151643",
                # Arrays stand for lists here: stores take both.
                prompt_ids=cast("list[int]", ids[:split]),
                response_ids=cast("list[int]", ids[split : split + sampled]),
                response_logprobs=cast("list[float | None]", logprobs[turn * sampled : (turn + 1) * sampled]),
                logprob_space="processed",
                prompt_messages=None if said is None else list(said),
                tools=tools,
                response_message=reply,
                sampling=_SAMPLING,
                finish_reason="tool_calls",
                usage=Usage(split, sampled),
                created_at=_STARTED + turn,
                latency_ms=812.5,
                metadata={"prompt": "bridged" if turn else "rendered"},
            )
        )
        if said is not None and reply is not None:
            said += (reply, writer.result(turn, (new_ids - sampled) * _CHARACTERS_PER_ID))
    return steps


class _Writer:
    """Cuts texts of given lengths out of one long one."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        self._corpus = _corpus(random, _CORPUS)

    def text(self, length: int) -> str:
        """Sentences, code and listings of `length` characters."""
        begin = int(self._random.integers(0, len(self._corpus) - length))
        return self._corpus[begin : begin + length]

    def reply(self, turn: int, length: int) -> Message:
        """A thought and a tool call."""
        arguments = msgspec.json.encode({"path": self.text(24), "content": self.text(length // 3)}).decode()
        function = FunctionCall(name=_TOOL_NAMES[turn % len(_TOOL_NAMES)], arguments=arguments)
        thought = self.text(max(length - len(arguments), 40))
        return Message(role="assistant", reasoning=thought, tool_calls=(ToolCall(f"call_{turn}", function),))

    def result(self, turn: int, length: int) -> Message:
        """What the tool answers."""
        return Message(role="tool", content=self.text(length), tool_call_id=f"call_{turn}")


def _corpus(random: np.random.Generator, length: int) -> str:
    places = random.integers(0, len(_SYLLABLES), (12_000, 4)).tolist()
    words = sorted({"".join(_SYLLABLES[at] for at in row[: 1 + number % 4]) for number, row in enumerate(places)})
    weights = 1.0 / (10.0 + np.arange(len(words)))
    order = random.permutation(len(words))
    count = length // 30
    drawn = order[
        np.searchsorted(np.cumsum(weights / weights.sum()), random.random((count, 4))).clip(max=len(words) - 1)
    ]
    numbers = random.integers(0, 1 << 20, count).tolist()
    forms = np.repeat(random.integers(0, len(_TEMPLATES), count // 4 + 1), 4).tolist()
    lines = [
        _TEMPLATES[form].format(*(words[place] for place in places), number)
        for form, places, number in zip(forms, drawn.tolist(), numbers, strict=False)
    ]
    return "".join(lines)


def _tools(writer: _Writer) -> list[dict[str, Any]]:
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": writer.text(240),
                "parameters": {
                    "type": "object",
                    "properties": {
                        "path": {"type": "string", "description": writer.text(80)},
                        "content": {"type": "string", "description": writer.text(80)},
                    },
                    "required": ["path"],
                },
            },
        }
        for name in _TOOL_NAMES
    ]


def _name(prefix: str, *parts: object) -> str:
    """As long as the names that the gateway gives, and the same for the same parts."""
    return f"{prefix}_{hashlib.blake2b('/'.join(map(str, parts)).encode(), digest_size=13).hexdigest()}"


def in_turn_order(trajectories: Sequence[list[Step]]) -> Iterator[Step]:
    """Steps as concurrent rollouts bring them: each one's first turn, then each one's second."""
    for turn in zip(*trajectories, strict=True):
        yield from turn
