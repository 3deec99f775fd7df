"""What an agent is: a Python loop of ours, or somebody's command. One short TOML file each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from agentworld.config import convert, read_toml
from agentworld.errors import ConfigError
from agentworld.records import Sampling, check_id

Stdin = Literal["task", "prompt", "none"]
AnswerFrom = Literal["stdout", "last_reply"]
PLACEHOLDERS = ("python", "prompt", "task_file", "base_url", "api_key", "model", "trajectory_id", "environment_url")
HERE = "{here}"
PLACEHOLDER = re.compile(r"\{(" + "|".join(PLACEHOLDERS) + r")\}")


class SamplingTable(Sampling, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Sampling as a table of a configuration, where a misspelt field is an error."""


class LoopAgent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="loop"):
    """The white-box tool loop: model, tools, model, ... until the model answers without a call.

    `system`: a system message put before the task's messages. `max_turns`: most model calls in one rollout.
    `timeout`: seconds for the whole rollout, waiting for a paused gateway included. `concurrency`: most rollouts at
    one moment (default: the run's). `sampling` replaces the run's sampling field by field.
    """

    name: str = "loop"
    system: str | None = None
    max_turns: int = 8
    timeout: float = 300.0
    concurrency: int | None = None
    sampling: SamplingTable = SamplingTable()
    extra_body: dict[str, Any] = {}


class CommandAgent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="command"):
    """A black-box agent: a command that finds its model at OPENAI_BASE_URL (or ANTHROPIC_BASE_URL).

    `command`: program and arguments, no shell; `{prompt}`, `{task_file}`, `{base_url}`, `{api_key}`, `{model}`,
    `{trajectory_id}`, `{environment_url}`, `{python}` (the running interpreter) and `{here}` (the folder of the
    definition) are replaced, other braces stay.
    `stdin`: the task as JSON, the text of its last message, or nothing. `answer`: where the final answer is read,
    from the command's standard output or from the last reply that the pool holds.
    `cwd`: working directory (default: a fresh one for each rollout, removed afterwards).
    `timeout`: seconds, after which the command's whole process group is killed.
    `lines`: the command stays up and takes one JSON line a rollout on stdin (see docs/guides/agents-and-tasks.md), for
    agents whose start costs more than their work. `concurrency`: most rollouts at one moment.
    """

    command: tuple[str, ...]
    name: str = "command"
    stdin: Stdin = "task"
    answer: AnswerFrom = "last_reply"
    cwd: str | None = None
    env: dict[str, str] = {}
    timeout: float = 600.0
    lines: bool = False
    concurrency: int | None = None
    max_turns: int = 8
    sampling: SamplingTable = SamplingTable()

    @property
    def limit(self) -> int:
        """Rollouts at one moment: few where each is a process, many where one process serves all."""
        return self.concurrency or (64 if self.lines else 4)


Agent = LoopAgent | CommandAgent


def agent_from(data: Mapping[str, Any], source: str, here: Path | None = None) -> Agent:
    """The agent that `data` defines; ConfigError names the field and what to do. `here`: the folder of its definition
    (default: the working directory).
    """
    if data.get("kind") not in ("loop", "command"):
        raise ConfigError(
            f"{source}: kind is {data.get('kind')!r}", path="$.kind", hint='Use kind = "loop" or kind = "command"'
        )
    agent: Agent
    if data["kind"] == "loop":
        agent = convert(data, LoopAgent, source)
    else:
        agent = convert(data, CommandAgent, source)
        folder = str((here or Path()).resolve())
        agent = msgspec.structs.replace(agent, command=tuple(part.replace(HERE, folder) for part in agent.command))
    check_id(agent.name, f"{source}: name")
    if isinstance(agent, CommandAgent) and not agent.command:
        raise ConfigError(f"{source}: command is empty", path="$.command", hint='For example command = ["my-agent"]')
    for field in ("timeout", "concurrency", "max_turns"):
        value = getattr(agent, field)
        if value is not None and value <= 0:
            raise ConfigError(f"{source}: {field} must be over 0, not {value}", path=f"$.{field}")
    return agent


def read_agent(path: str | Path) -> Agent:
    """The agent in a TOML file; its name is the file's unless it gives one."""
    data = read_toml(path)
    return agent_from({"name": Path(path).stem, **data}, str(path), Path(path).parent)
