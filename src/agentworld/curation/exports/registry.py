"""Layouts by name: those of this package, those of the entry point `agentworld.exports`, and yours by decorator."""

from __future__ import annotations

import difflib
import functools
import importlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from agentworld.curation.datasets.frozen import FrozenTrajectory
from agentworld.curation.datasets.scratch import Scratch
from agentworld.curation.exports.columns import Kind
from agentworld.curation.exports.options import ExportOptions, FileFormat
from agentworld.curation.exports.signals import values_of
from agentworld.errors import ConfigError
from agentworld.extensions import load_extensions
from agentworld.records import DatasetRow, DatasetVersion, Step

ENTRY_POINTS = "agentworld.exports"
VALUES = "values"
"""Where `Work.shared` counts which values the trajectories have that lack the one that was asked for."""
_BUILT_IN = ("sft", "sft_tokens", "preference", "kto", "prm", "rl_prompts", "steps", "atif")


class Source(Protocol):
    """What layouts read beside the trajectory that they are given."""

    version: DatasetVersion

    def at(self, position: int) -> FrozenTrajectory | None:
        """A row of the version again; null where its trajectory is gone."""

    def find(self, trajectory_id: str) -> DatasetRow | None:
        """The row of a trajectory; null where it is not in the version."""

    def trajectory_of(self, step_id: str) -> str | None:
        """The trajectory of a step of the pool; null where it is not there."""

    def media(self, digest: str) -> bytes:
        """The bytes of a medium; NotFoundError where they are not there."""


class Origin(NamedTuple):
    """Where a row comes from; its first step is the one that it is of."""

    trajectory_id: str
    step_ids: list[str]


def origin_of(steps: Sequence[Step]) -> Origin:
    """Of a row that is made of these steps, one or more, of one trajectory."""
    return Origin(steps[0].trajectory_id, [step.step_id for step in steps])


Row = dict[str, Any]
"""Column to value, and under `agentworld` the `Origin` of the row."""


class Work:
    """One split of an export while it is written. `left_out` counts what gives no row, by reason. `shared` is for what
    the layout keeps over all splits, `scratch` for what it keeps of each of many rows of this one.
    """

    def __init__(
        self, options: ExportOptions, source: Source, left_out: Counter[str], shared: dict[str, Any] | None = None
    ) -> None:
        self.shared: dict[str, Any] = {} if shared is None else shared
        self.options = options
        self.source = source
        self.left_out = left_out
        self._scratch: Scratch | None = None

    @property
    def scratch(self) -> Scratch:
        """Tables in a temporary file."""
        if self._scratch is None:
            self._scratch = Scratch()
        return self._scratch

    def close(self) -> None:
        """Forget what is in the scratch."""
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = None

    def without_value(self, frozen: FrozenTrajectory, count: int = 1) -> None:
        """Count what has no value of the name that was asked for, and which others it has."""
        self.left_out["without_value"] += count
        self.shared.setdefault(VALUES, Counter()).update(values_of(frozen))


class LayoutRows(Protocol):
    """A layout at work on one split: made with its `Work`."""

    def rows(self, frozen: FrozenTrajectory) -> Iterator[Row]:
        """The rows of one trajectory. What cannot be a row is counted in `work.left_out`."""

    def rest(self) -> Iterator[Row]:
        """Rows that needed all trajectories of the split."""


Columns = Callable[[ExportOptions], Mapping[str, Kind]]
_C = TypeVar("_C", bound=type)


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """One layout. `takes`: the options that it takes. `styles`: variants, the first being the default. `reads`: what
    is read of steps beside their facts: messages, tokens, logprobs; or, for the last two, arrays, which are in
    `FrozenTrajectory.arrays`. `files`: the formats of files that it is written in, the first being the default; in json
    each row is a file of its own. `as_it_is`: columns that hold what is said on the day of the export, and was not
    frozen.
    """

    name: str
    says: str
    columns: Columns
    make: Callable[[Work], LayoutRows]
    takes: frozenset[str]
    styles: tuple[str, ...]
    reads: tuple[str, ...]
    files: tuple[FileFormat, ...]
    as_it_is: frozenset[str] = frozenset()


_registered: dict[str, Layout] = {}


def layout(
    name: str,
    *,
    says: str,
    columns: Columns,
    takes: tuple[str, ...] = (),
    styles: tuple[str, ...] = (),
    reads: tuple[str, ...] = ("messages",),
    files: tuple[FileFormat, ...] = ("parquet", "jsonl"),
    as_it_is: tuple[str, ...] = (),
) -> Callable[[_C], _C]:
    """Register the decorated class, which is made with a `Work`; ConfigError where the name is another's."""
    if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
        raise ConfigError(f"{name!r} cannot be the name of a layout", path="format", hint="Use a-z, 0-9 and -")

    def register(made: _C) -> _C:
        there = _registered.get(name)
        address = (made.__module__, made.__qualname__)
        if there is not None and (there.make.__module__, getattr(there.make, "__qualname__", "")) != address:
            raise ConfigError(f"two layouts are called {name!r}", path="format", hint="Rename one of them")
        _registered[name] = Layout(
            name=name,
            says=says,
            columns=columns,
            make=made,
            takes=frozenset(takes),
            styles=styles,
            reads=reads,
            files=files,
            as_it_is=frozenset(as_it_is),
        )
        return made

    return register


@functools.cache
def _load() -> None:
    for module in _BUILT_IN:
        importlib.import_module(f"agentworld.curation.exports.layouts.{module}")
    for _ in load_extensions(ENTRY_POINTS, "layouts"):
        pass  # They register themselves.


def known_layouts() -> dict[str, Layout]:
    """All layouts by name: those of this package first."""
    _load()
    own = [module.replace("_", "-") for module in _BUILT_IN]
    return {name: _registered[name] for name in dict.fromkeys([*own, *_registered])}


def layout_of(name: str) -> Layout:
    """The layout of that name; ConfigError names the nearest."""
    there = known_layouts()
    if name not in there:
        near = difflib.get_close_matches(name, there, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(there)}"
        raise ConfigError(f"no layout is called {name!r}", path="format", hint=hint)
    return there[name]
