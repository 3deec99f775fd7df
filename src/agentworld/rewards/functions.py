"""Evaluators that are plain functions: of a module of yours, by a decorator or by an entry point.

from agentworld.rewards import evaluator

@evaluator("polite")
def polite(run):
    return float("please" in run.steps[-1].response_message.text)
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any, NamedTuple, TypeVar

from agentworld.errors import ConfigError
from agentworld.rewards.protocol import EvaluationError, Judgement, RolloutGroup, Scope, Subject, Verdict

GROUP = "agentworld.evaluators"
"""The group of entry points: each names a `module:function`."""

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)
_ATTRIBUTE = "__agentworld_evaluator__"


class FunctionFacts(NamedTuple):
    """What `evaluator` notes of a function."""

    name: str
    scope: Scope
    version: str
    values: tuple[str, ...]
    needs: tuple[str, ...] = ()


_registered: dict[str, Function] = {}


def evaluator(
    name: str,
    *,
    scope: Scope = "trajectory",
    version: str = "1",
    values: tuple[str, ...] = (),
    needs: tuple[str, ...] = (),
) -> Callable[[F], F]:
    """Make a function an evaluator that configuration can call by `name`.

    It takes what its scope says (a `BatchTrajectory`, or a `RolloutGroup` for `group`) and the parameters of its
    configuration by name, and returns a number, `{name: number}` or a `Verdict`; of the scopes `group` and `step` a
    mapping of such by trajectory or step id. None is not judged. `values`: the names that it gives, where it gives
    others than the one of its configuration. `needs`: the rewards that it reads on what it judges; it is run after
    those who give them, and sees no others.
    """

    def register(function: F) -> F:
        known = _registered.get(name)
        if known is not None and (known.__module__, known.__qualname__) != (function.__module__, function.__qualname__):
            raise ConfigError(
                f"two evaluators are called {name!r}: {address_of(known)} and {address_of(function)}",
                hint="Give one another name",
            )
        setattr(function, _ATTRIBUTE, FunctionFacts(name, scope, version, values, needs))
        _registered[name] = function
        return function

    return register


def facts_of(function: Function) -> FunctionFacts:
    """What the decorator noted; a function without it judges trajectories."""
    facts: FunctionFacts | None = getattr(function, _ATTRIBUTE, None)
    return facts or FunctionFacts(getattr(function, "__name__", "function"), "trajectory", "1", ())


def address_of(function: Function) -> str:
    """`module:name`, by which another process finds the function."""
    return f"{function.__module__}:{function.__qualname__}"


def known_names() -> list[str]:
    """Names of registered functions and of entry points."""
    return sorted({*_registered, *(point.name for point in entry_points(group=GROUP))})


def find_function(kind: str) -> Function | None:
    """The function that `kind` names: registered, an entry point, or "module:function"; None where nothing does."""
    if kind in _registered:
        return _registered[kind]
    for point in entry_points(group=GROUP):
        if point.name == kind:
            return load_function(point.value)
    return load_function(kind) if ":" in kind else None


def load_function(address: str) -> Function:
    """The function at `module:name`; ConfigError says what is missing."""
    module, _, name = address.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"the module of evaluator {address!r} cannot be imported: {error}", path="kind") from None
    try:
        for part in name.split("."):
            found = getattr(found, part)
    except AttributeError:
        raise ConfigError(f"module {module} has no {name!r}", path="kind") from None
    if not callable(found):
        raise ConfigError(f"evaluator {address!r} is no function", path="kind")
    function: Function = found
    return function


def call_function(function: Function, scope: Scope, reward: str, subject: Subject, parameters: Any) -> Judgement:
    """What the function says, in the protocol's words; what cannot be such is left for `checked` to refuse."""
    said = function(subject, **parameters)
    if scope == "trajectory":
        verdict: Verdict = _verdict(said, reward)
        return verdict
    if not isinstance(said, Mapping):
        what = "trajectory" if isinstance(subject, RolloutGroup) else "step"
        raise EvaluationError(f"the function returned a {type(said).__name__}, not values by {what} id")
    return {target: _verdict(each, reward) for target, each in said.items()}


def _verdict(said: Any, reward: str) -> Any:
    if said is None:
        return Verdict({})
    if isinstance(said, Verdict):
        return said
    return Verdict(dict(said)) if isinstance(said, Mapping) else Verdict({reward: said})
