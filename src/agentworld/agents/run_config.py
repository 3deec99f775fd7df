"""The configuration of `agentworld run`: one TOML file, agents and task sets inline or in files of their own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from agentworld.agents.definition import Agent, SamplingTable, agent_from
from agentworld.agents.pacing import check_pace
from agentworld.agents.ports import FactoryClient, Notify, ignore
from agentworld.agents.progress import RunProgress
from agentworld.agents.report import RunReport
from agentworld.agents.runner import run_rollouts
from agentworld.config import blamed, convert, read_toml
from agentworld.errors import ConfigError
from agentworld.records import check_id, new_id
from agentworld.tasks.base import Task, TaskSet
from agentworld.tasks.definition import task_set_from


class RunConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to run. `agents`, `task_sets`: tables; `path` in one takes the definition from another TOML file.

    A task set's table also says which of its tasks to do: `count`, `split`, `seed`. Paths start at the file's folder.
    `name`: the run; the same name again continues it, without one each run is new. `max_staleness`: rollouts wait where
    they would be older than that once a trainer that takes `batch` rollouts an update has come to them; `barrier`: the
    same with 0; `skip_equal`: that trainer skips groups of equal rewards.
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
    max_staleness: int | None = None
    batch: int | None = None
    barrier: bool = False
    skip_equal: bool = False
    sampling: SamplingTable = SamplingTable()


class Selection(msgspec.Struct, frozen=True):
    """Which tasks of a set: the first `count` of a split (none: as many as the set gives), drawn with `seed`."""

    count: int | None = None
    split: str = "train"
    seed: int = 0


def read_run(path: str | Path) -> RunConfig:
    """The configuration in a TOML file; ConfigError names the field and what to do."""
    data = read_toml(path)
    refuse_other_kinds(path, data)
    config = convert(data, RunConfig, str(path))
    for field, lowest in (("rollouts", 1), ("concurrency", 1), ("retries", 0)):
        if getattr(config, field) < lowest:
            raise ConfigError(f"{path}: {field} must be at least {lowest}", path=f"$.{field}")
    for field in ("agents", "task_sets"):
        if not getattr(config, field):
            raise ConfigError(f"{path}: there are no {field}", path=f"$.{field}", hint=f"Add a table [[{field}]]")
    if config.name is not None:
        check_id(config.name, "$.name")
    with blamed(str(path)):
        check_pace(config.max_staleness, config.batch, config.barrier, config.rollouts)
    if config.skip_equal and config.batch is None:
        raise ConfigError(f"{path}: skip_equal goes with max_staleness or barrier", path="$.skip_equal")
    return config


def refuse_other_kinds(path: str | Path, data: Mapping[str, Any]) -> None:
    """ConfigError where the file is another kind of ours, told by fields that a run has not."""
    if any(name in data for name in ("agents", "task_sets")):
        return
    kinds = {
        "a task set": ({"ready", "file", "python"}, f'Name it in a run\'s file: [[task_sets]] path = "{path}"'),
        "an agent": ({"kind", "command"}, f'Name it in a run\'s file: [[agents]] path = "{path}"'),
        "the configuration of a training": ({"settings", "batch", "batches"}, f"Use `agentworld train {path}`"),
        "the configuration of a server": ({"models", "upstream"}, f"Use `agentworld serve --config {path}`"),
    }
    for kind, (fields, hint) in kinds.items():
        if not fields.isdisjoint(data):
            raise ConfigError(f"{path} is {kind}, not the configuration of a run", hint=hint)


async def run_from_config(
    client: FactoryClient,
    config: RunConfig,
    folder: Path,
    *,
    progress: RunProgress | None = None,
    notify: Notify = ignore,
) -> RunReport:
    """Run a configuration whose paths start at `folder`."""
    return await run_rollouts(
        client,
        work_of(config, folder),
        agents_of(config, folder),
        name=config.name or new_id("run"),
        model=config.model,
        rollouts=config.rollouts,
        concurrency=config.concurrency,
        retries=config.retries,
        channel=config.channel,
        max_staleness=config.max_staleness,
        batch=config.batch,
        barrier=config.barrier,
        skip_equal=config.skip_equal,
        sampling=config.sampling,
        resume=config.name is not None,
        progress=progress,
        notify=notify,
    )


def agents_of(config: RunConfig, folder: Path) -> list[Agent]:
    """The agents."""
    agents: list[Agent] = []
    for number, table in enumerate(config.agents):
        source, fields, home = definition(table, folder, f"agents[{number}]")
        agents.append(agent_from(fields, source, home))
    return agents


def work_of(config: RunConfig, folder: Path) -> list[tuple[TaskSet, list[Task]]]:
    """The task sets, each with the tasks to do."""
    work: list[tuple[TaskSet, list[Task]]] = []
    for number, table in enumerate(config.task_sets):
        source, fields, home = definition(table, folder, f"task_sets[{number}]")
        chosen = {name: fields.pop(name) for name in Selection.__struct_fields__ if name in fields}
        said_by = {name: f"task_sets[{number}]" if name in table else source for name in chosen}
        for name, value in chosen.items():
            convert({name: value}, Selection, said_by[name])
        selection = convert(chosen, Selection, source)
        if selection.count is not None and selection.count < 1:
            message = f"count must be at least 1, not {selection.count}"
            raise ConfigError(f"{said_by['count']}: {message}", path="$.count")
        with blamed(source):
            task_set = task_set_from(fields, source, home)
        try:
            tasks = task_set.tasks(selection.count, split=selection.split, seed=selection.seed)
            if not tasks:
                raise ConfigError(f"there are no tasks of split {selection.split}", path="split")
        except ConfigError as error:
            with blamed(said_by.get(error.path or "", source)):
                raise
        work.append((task_set, tasks))
    return work


def definition(table: Mapping[str, Any], folder: Path, place: str) -> tuple[str, dict[str, Any], Path]:
    """Where a definition stands, its fields, and the folder that its own paths start at.

    With a `path`, the fields are those of that file, with the table's own over them.
    """
    fields = dict(table)
    path = fields.pop("path", None)
    if path is None:
        return place, fields, folder
    if not isinstance(path, str):
        raise ConfigError(f"{place}: path is {path!r}, which is no text", path="$.path")
    file = folder / path
    return str(file), {"name": file.stem, **read_toml(file), **fields}, file.parent
