"""Checks by name: those of this package, those of the entry point `agentworld.checks`, and yours by decorator."""

from __future__ import annotations

import difflib
import functools
import importlib
import re
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar, get_args

import msgspec

from agentworld.errors import ConfigError
from agentworld.extensions import load_extensions
from agentworld.records import check_id

Scope = Literal["step", "trajectory", "group", "pool"]
ENTRY_POINTS = "agentworld.checks"
FAILED = "failed"
"""Name of the label that says which checks failed on a trajectory; no check is called that."""
CHECKED = "checked"
"""The label of a trajectory that checks have gone over, which says with what; no check is called that."""

_BUILT_IN = (
    "gating",
    "tool_calls",
    "tool_errors",
    "loops",
    "replies",
    "shortcuts",
    "hacking",
    "private_data",
    "groups",
    "duplicates",
    "near_duplicates",
    "lengths",
    "difficulty",
    "contamination",
)
_F = TypeVar("_F", bound=Callable[..., Any])


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One check. `says`: what its value means. `fails`: what it takes for it wrongly, and what it overlooks.

    `function` by scope: step: `(turn, run, context) -> Found`s; trajectory: `(run, context) -> Found`s; group:
    `(members, context) -> Found`s with their trajectory_id; pool: a class, see `PoolCheck`. `gates`: it is meant for
    rules that keep something from being served. `optional`: it runs only where it is given what it needs.
    `reads_steps`: of a check of groups, whether members are read with their steps.
    """

    name: str
    version: str
    scope: Scope
    values: str
    says: str
    fails: str
    function: Callable[..., Any]
    gates: bool = False
    optional: bool = False
    reads_steps: bool = True


_registered: dict[str, Check] = {}


def check(
    name: str,
    *,
    scope: Scope,
    says: str,
    fails: str,
    values: str = "true",
    version: str = "1",
    gates: bool = False,
    optional: bool = False,
    reads_steps: bool = True,
) -> Callable[[_F], _F]:
    """Register the decorated function or class as a check; ConfigError where the name is taken by other code."""
    check_id(name, "check")
    if name in (FAILED, CHECKED):
        raise ConfigError(
            f"{name!r} cannot be the name of a check: a label of ours is called that",
            path="check",
            hint="Give the check another name",
        )
    if not re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*", name):
        raise ConfigError(f"{name!r} cannot be the name of a check", path="check", hint="Use a-z, 0-9, _ and .")
    if scope not in get_args(Scope):
        raise ConfigError(f"check {name}: no scope {scope!r}", path="scope", hint=f"Use {', '.join(get_args(Scope))}")

    def register(function: _F) -> _F:
        there = _registered.get(name)
        address = (function.__module__, function.__qualname__)
        if there is not None and (there.function.__module__, there.function.__qualname__) != address:
            raise ConfigError(f"two checks are called {name!r}", path="check", hint="Rename one of them")
        _registered[name] = Check(
            name=name,
            version=version,
            scope=scope,
            values=values,
            says=says,
            fails=fails,
            function=function,
            gates=gates,
            optional=optional,
            reads_steps=reads_steps,
        )
        return function

    return register


@functools.cache
def _load_built_in() -> None:
    for module in _BUILT_IN:
        importlib.import_module(f"agentworld.curation.checks.{module}")


@functools.cache
def _load_entry_points() -> None:
    for _ in load_extensions(ENTRY_POINTS, "checks"):
        pass  # They register themselves.


def built_in() -> dict[str, Check]:
    """The checks of this package by name."""
    _load_built_in()
    return {name: each for name, each in _registered.items() if each.function.__module__.startswith(__package__)}


def known() -> dict[str, Check]:
    """All checks by name: built in, from entry points, and registered by decorator so far."""
    _load_built_in()
    _load_entry_points()
    return dict(_registered)


def chosen(names: Iterable[str]) -> frozenset[str]:
    """These names, `all` standing for every check; ConfigError names the nearest of one that is not known."""
    there = known()
    wanted: set[str] = set()
    for name in names:
        if name == "all":
            wanted.update(there)
        elif name in there:
            wanted.add(name)
        else:
            near = difflib.get_close_matches(name, there, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(sorted(there))}"
            raise ConfigError(f"no check is called {name!r}", path="checks", hint=hint)
    return frozenset(wanted)
