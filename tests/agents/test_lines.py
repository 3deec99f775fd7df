"""Agents that stay up and take rollouts as lines."""

import asyncio
import sys

import pytest

from agentworld.agents.definition import CommandAgent
from agentworld.agents.lines import LineProcess
from agentworld.agents.ports import AgentFailure

ECHO = """
import json, sys, os
for line in sys.stdin:
    task = json.loads(line)
    if task.get("cancel"):
        print(json.dumps({"id": "watch", "answer": "cancelled " + task["id"]}), flush=True)
    elif task["prompt"] == "die":
        print("out of luck", file=sys.stderr, flush=True)
        os._exit(1)
    elif task["prompt"] == "fail":
        print(json.dumps({"id": task["id"], "error": "cannot"}), flush=True)
    elif task["prompt"] != "wait":
        print("a stray line", flush=True)
        print(json.dumps({"id": task["id"], "answer": task["prompt"] + str(os.getpid())}), flush=True)
"""


@pytest.fixture
async def lines():
    process = LineProcess(CommandAgent(command=("{python}", "-c", ECHO), lines=True))
    yield process
    await process.close()


async def test_many_rollouts_share_one_process(lines):
    answers = await asyncio.gather(*(lines.ask({"id": str(n), "prompt": f"{n}-"}) for n in range(20)))
    assert [answer.split("-")[0] for answer in answers] == [str(n) for n in range(20)]
    assert len({answer.split("-")[1] for answer in answers}) == 1


async def test_an_error_is_the_rollouts_failure(lines):
    with pytest.raises(AgentFailure, match="cannot"):
        await lines.ask({"id": "a", "prompt": "fail"})
    assert (await lines.ask({"id": "b", "prompt": "x"})).startswith("x")


async def test_a_dead_process_fails_what_it_had_and_is_started_again(lines):
    waiting = asyncio.create_task(lines.ask({"id": "a", "prompt": "wait"}))
    with pytest.raises(AgentFailure, match="out of luck"):
        await lines.ask({"id": "b", "prompt": "die"})
    with pytest.raises(AgentFailure, match="has ended"):
        await waiting
    assert (await lines.ask({"id": "c", "prompt": "x"})).startswith("x")


async def test_cancelling_tells_the_process(lines):
    watch = asyncio.create_task(lines.ask({"id": "watch", "prompt": "wait"}))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await lines.ask({"id": "slow", "prompt": "wait"})
    assert await watch == "cancelled slow"


async def test_missing_program():
    process = LineProcess(CommandAgent(command=("/no/such/agent",), lines=True))
    with pytest.raises(AgentFailure, match="cannot start"):
        await process.ask({"id": "a", "prompt": "x"})
    await process.close()


async def test_python_is_the_running_one(lines):
    del lines
    process = LineProcess(
        CommandAgent(
            command=(
                "{python}",
                "-c",
                "import sys, json; print(json.dumps({'id': json.loads(input())['id'], 'answer': sys.executable}))",
            ),
            lines=True,
        )
    )
    assert await process.ask({"id": "a", "prompt": ""}) == sys.executable
    await process.close()
