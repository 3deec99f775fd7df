"""The black-box agent: one command a rollout, or one command that takes many rollouts as lines."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from agentworld.agents.definition import PLACEHOLDER, CommandAgent
from agentworld.agents.lines import LineProcess
from agentworld.agents.ports import AgentFailure, Play, Started
from agentworld.agents.process import run_command
from agentworld.agents.variables import NO_KEY, agent_environment
from agentworld.records import Message

# Linux refuses an environment string or an argument over 128 KiB.
LONGEST_VARIABLE = 100_000
SHOWN_ERROR = 400


def task_for(
    agent: CommandAgent,
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    environment_url: str | None,
    model: str,
    sampling: Mapping[str, Any],
) -> dict[str, Any]:
    """What a black-box agent is told of its task; never the reference."""
    return {
        "prompt": messages[-1].text if messages else "",
        "messages": msgspec.to_builtins(list(messages)),
        "tools": list(tools),
        "environment_url": environment_url,
        "model": model,
        "sampling": dict(sampling),
        "max_turns": agent.max_turns,
    }


async def play_command(agent: CommandAgent, started: Started, task: Mapping[str, Any], play: Play) -> None:
    """Run the command once; AgentFailure where it cannot start or ends with a code other than 0."""
    base_url = gateway_of(started)
    encoded = msgspec.json.encode(task)
    with tempfile.TemporaryDirectory(prefix="agentworld-") as folder:
        task_file, place = lay_out(folder, encoded)
        values = {
            "python": sys.executable,
            "prompt": task["prompt"],
            "task_file": task_file,
            "base_url": base_url,
            "api_key": started.api_key or NO_KEY,
            "model": task["model"],
            "trajectory_id": started.trajectory_id,
            "environment_url": task["environment_url"] or "",
        }
        around = {**os.environ, **agent.env}
        env = agent_environment(around, agent.command[0], base_url, started.api_key, started.trajectory_id)
        env["AGENTWORLD_ENVIRONMENT_URL"] = values["environment_url"]
        if len(encoded) <= LONGEST_VARIABLE:
            env["AGENTWORLD_TASK"] = encoded.decode()
        stdin = {"task": encoded, "prompt": task["prompt"].encode("utf-8", "replace"), "none": b""}[agent.stdin]
        command = [fill(part, values) for part in agent.command]
        done = await run_command(command, env=env, cwd=agent.cwd or place, stdin=stdin, timeout=agent.timeout)
    if agent.answer == "stdout":
        play.answer = done.stdout.strip()
    if done.timed_out:
        play.stopped = "timeout"
    elif done.code != 0:
        raise AgentFailure(f"{shlex.join(command)[:120]} ended with code {done.code}: {last_words(done.stderr)}")


async def play_line(process: LineProcess, started: Started, task: Mapping[str, Any], play: Play) -> None:
    """Hand the task to a running command; AgentFailure with the error that it reports."""
    play.answer = await process.ask(
        {
            **task,
            "id": started.trajectory_id,
            "base_url": gateway_of(started),
            "api_key": started.api_key or NO_KEY,
        }
    )


def lay_out(folder: str, encoded_task: bytes) -> tuple[str, str]:
    """The task file and the empty working directory of one rollout."""
    task_file, place = Path(folder, "task.json"), Path(folder, "work")
    task_file.write_bytes(encoded_task)
    place.mkdir()
    return str(task_file), str(place)


def gateway_of(started: Started) -> str:
    """The trajectory's base URL."""
    if started.base_url is None:
        raise AgentFailure("the server has no gateway; start `agentworld serve` with --upstream and --model")
    return started.base_url


def fill(part: str, values: Mapping[str, str]) -> str:
    """`part` with its placeholders replaced; other braces stay."""
    return PLACEHOLDER.sub(lambda found: values[found[1]], part)


def last_words(stderr: str) -> str:
    """The last line of an error output, which is where programs say what is wrong."""
    lines = [line for line in stderr.splitlines() if line.strip()]
    return lines[-1].strip()[:SHOWN_ERROR] if lines else "it wrote nothing to stderr"
