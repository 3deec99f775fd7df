"""Task sets from short TOML files."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from agentworld.config import convert, read_toml
from agentworld.errors import ConfigError
from agentworld.tasks.base import TaskSet
from agentworld.tasks.jsonl import JsonlDefinition, JsonlTaskSet
from agentworld.tasks.ready import ready_task_set


class ReadyDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A ready set by its name: `ready = "arithmetic"`, or `"reasoning-gym:chain_sum"` with `options` of its own."""

    ready: str
    options: dict[str, Any] = {}
    name: str | None = None
    kind: Literal["ready"] = "ready"


def read_task_set(path: str | Path) -> TaskSet:
    """The task set that the TOML file at `path` defines; its name is the file's, unless it gives one."""
    path = Path(path)
    return task_set_from({"name": path.stem, **read_toml(path)}, str(path), path.parent)


def task_set_from(fields: Mapping[str, Any], source: str = "task set", folder: Path | None = None) -> TaskSet:
    """The task set of a table: `ready` names a ready one, `file` a JSONL file, `python` a "module:function".

    `source`: named in errors. `folder`: where relative paths start (default: the working directory). Without `name`, a
    set of a JSONL file has the file's.
    """
    kinds = [name for name in ("ready", "file", "python") if name in fields]
    if len(kinds) != 1:
        raise ConfigError(
            f"{source}: a task set has one of ready, file and python, not {' and '.join(kinds) or 'none'}",
            hint='For example file = "tasks.jsonl" with checker = "exact"',
        )
    if kinds == ["ready"]:
        given = convert(fields, ReadyDefinition, source)
        return ready_task_set(given.ready, given.options)
    if kinds == ["python"]:
        return _own(fields, source)
    named = fields if fields.get("name") is not None else {**fields, "name": Path(str(fields["file"])).stem}
    definition = convert(named, JsonlDefinition, source)
    make = _function(definition.environment, source) if definition.environment else None
    return JsonlTaskSet(definition, folder or Path(), make)


def _own(fields: Mapping[str, Any], source: str) -> TaskSet:
    """A set made by a function of the user, called with the table's other fields."""
    options = {name: value for name, value in fields.items() if name not in ("python", "kind", "name")}
    try:
        made = _function(fields["python"], source)(**options)
    except TypeError as error:
        raise ConfigError(f"{source}: {fields['python']} does not take these fields: {error}") from None
    missing = [name for name in ("name", "tasks", "environment", "check") if not hasattr(made, name)]
    if missing:
        raise ConfigError(f"{source}: {fields['python']} made something without {', '.join(missing)}")
    task_set: TaskSet = made
    return task_set


def _function(name: Any, source: str) -> Any:
    module, colon, function = name.partition(":") if isinstance(name, str) else ("", "", "")
    if not colon:
        raise ConfigError(f'{source}: expected "module:function", not {name!r}')
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{source}: {name} cannot be had: {error}") from None
    if not callable(found):
        raise ConfigError(f"{source}: {name} is no function")
    return found
