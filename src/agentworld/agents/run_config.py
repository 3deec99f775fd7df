"""The configuration of `agentworld run`: one TOML file, agents and task sets inline or in files of their own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from agentworld.agents.definition import Agent, agent_from
from agentworld.config import convert, read_toml
from agentworld.errors import ConfigError
from agentworld.records import Sampling, check_id
from agentworld.tasks import Task, TaskSet, read_task_set, task_set_from


class RunConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to run. `agents`, `task_sets`: tables; `path` in one takes the definition from another TOML file.

    A task set table also says which of its tasks to do: `count`, `split`, `seed`. Paths start at the file's folder.
    `name`: the run; the same name again continues it, without one each run is new.
    """

    model: str
    task_sets: list[dict[str, Any]]
    agents: list[dict[str, Any]]
    name: str | None = None
    url: str | None = None
    rollouts: int = 1
    concurrency: int = 64
    retries: int = 2
    channel: str = "train"
    sampling: Sampling = Sampling()


class Selection(msgspec.Struct, frozen=True):
    """Which tasks of a set."""

    count: int | None = None
    split: str = "train"
    seed: int = 0


def read_run(path: str | Path) -> RunConfig:
    """The configuration in a TOML file; ConfigError names the field and what to do."""
    config = convert(read_toml(path), RunConfig, str(path))
    for field, lowest in (("rollouts", 1), ("concurrency", 1), ("retries", 0)):
        if getattr(config, field) < lowest:
            raise ConfigError(f"{path}: {field} must be at least {lowest}", path=f"$.{field}")
    for field, example in (
        ("agents", '[[agents]]\nkind = "loop"'),
        ("task_sets", '[[task_sets]]\npath = "tasks.toml"'),
    ):
        if not getattr(config, field):
            raise ConfigError(f"{path}: there are no {field}", path=f"$.{field}", hint=f"Add a table [[{field}]]")
    if config.name is not None:
        check_id(config.name, f"{path}: name")
    return config


def agents_of(config: RunConfig, folder: Path) -> list[Agent]:
    """The agents; a table's other fields go over those of its `path`."""
    agents: list[Agent] = []
    for number, table in enumerate(config.agents):
        source, fields = definition(table, folder, f"agents[{number}]")
        agents.append(agent_from(fields, source))
    names = [agent.name for agent in agents]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two agents are called {name!r}", path="$.agents", hint="Give each a name of its own")
    return agents


def definition(table: Mapping[str, Any], folder: Path, place: str) -> tuple[str, dict[str, Any]]:
    """Where a definition stands, and its fields: those of the file at `path`, with the table's own over them."""
    fields = dict(table)
    path = fields.pop("path", None)
    if path is None:
        return place, fields
    if not isinstance(path, str):
        raise ConfigError(f"path is {path!r}, which is no text", path=f"$.{place}.path")
    file = folder / path
    return str(file), {"name": file.stem, **read_toml(file), **fields}
