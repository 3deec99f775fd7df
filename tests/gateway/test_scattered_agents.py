"""An agent and its sub-agents whose calls are served here and there, by several processes or after restarts."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agentworld.records import Step

from .harness import Harness
from .test_several_processes import process, two

SESSION = "0b8a5c2e-8f5e-4d4c-9b1f-3f2f0c8d7e6a"
MAIN = {"x-claude-code-session-id": SESSION}
SUBS = [{**MAIN, "x-claude-code-agent-id": name} for name in ("agent-0001", "agent-0002")]
SYSTEM = {"role": "system", "content": "You are one of many."}


class Talk:
    """One conversation: a parent's or a sub-agent's."""

    def __init__(self, headers: dict[str, str], opening: str) -> None:
        self.headers = headers
        self.messages: list[dict[str, Any]] = [SYSTEM, {"role": "user", "content": opening}]
        self.replies: list[str] = []

    async def turn(self, harness: Harness) -> None:
        status, body, _ = await harness.chat({"messages": self.messages}, **self.headers)
        assert status == 200, body
        said = body["choices"][0]["message"]["content"]
        self.replies.append(said)
        self.messages += [
            {"role": "assistant", "content": said},
            {"role": "user", "content": f"on {len(self.replies)}"},
        ]

    def holds(self, steps: list[Step], first: str | None) -> None:
        """Its steps are one line, each prompt an extension of the sequence before it."""
        by_text = {step.response_message.content: step for step in steps if step.response_message is not None}
        mine = [by_text[said] for said in self.replies]
        assert [step.fork_reason for step in mine] == [first, *[None] * (len(mine) - 1)]
        assert [step.parent_step_id for step in mine] == [None, *[step.step_id for step in mine[:-1]]]
        assert len({step.agent for step in mine}) == 1
        for before, after in itertools.pairwise(mine):
            whole = [*(before.prompt_ids or []), *(before.response_ids or [])]
            assert (after.prompt_ids or [])[: len(whole)] == whole


def family() -> list[Talk]:
    return [Talk(MAIN, "Do it."), *(Talk(headers, f"Look into {n}.") for n, headers in enumerate(SUBS))]


def check(harness: Harness, talks: list[Talk]) -> None:
    steps = harness.steps()
    assert len({step.trajectory_id for step in steps}) == 1
    assert len(steps) == sum(len(talk.replies) for talk in talks)
    for number, talk in enumerate(talks):
        talk.holds(steps, "subagent" if number else None)


def names() -> Any:
    count = iter(range(1000))
    return lambda request: f"reply {next(count)}"


@asynccontextmanager
async def afresh(folder: Path, script: Any) -> AsyncIterator[Harness]:
    """A process that serves one call and ends."""
    async with process(folder, script, tokens="token-in") as harness:
        yield harness


async def test_each_turn_in_another_process(tmp_path: Path) -> None:
    async with two(tmp_path, names(), tokens="token-in") as gateways:
        talks = family()
        for turn in range(4):
            for number, talk in enumerate(talks):
                await talk.turn(gateways[(turn + number // 2) % 2])
        check(gateways[0], talks)


async def test_each_turn_after_a_restart(tmp_path: Path) -> None:
    talks, script = family(), names()
    for _ in range(3):
        for talk in talks:
            async with afresh(tmp_path, script) as harness:
                await talk.turn(harness)
    async with afresh(tmp_path, script) as harness:
        check(harness, talks)


@pytest.mark.parametrize("turns", [3])
async def test_all_at_once_here_and_there(tmp_path: Path, turns: int) -> None:
    async with two(tmp_path, names(), tokens="token-in") as gateways:
        talks = family()
        await talks[0].turn(gateways[0])  # A parent speaks before it has sub-agents.
        for turn in range(turns):
            await asyncio.gather(*(talk.turn(gateways[(turn + number) % 2]) for number, talk in enumerate(talks)))
        check(gateways[1], talks)
