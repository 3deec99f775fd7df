"""Credit methods by name: those that are here, those that were decorated, and entry points of `agentworld.credit`."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Literal

import msgspec
import numpy as np

from agentworld.config import convert
from agentworld.credit.rollouts import Rollout
from agentworld.credit.trees import FloatArray
from agentworld.errors import ConfigError, InvalidRequestError

ENTRY_POINTS = "agentworld.credit"
# What is read from a batch only for methods that say they need it.
Need = Literal["states", "roles", "values", "greedy"]


@dataclass(frozen=True, slots=True, eq=False)
class TokenCredits:
    """What a method gives that tells tokens apart: of each rollout, of each step, an array [its sampled tokens]."""

    values: list[list[FloatArray]]


class NoParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of methods that have none."""


Credits = list[FloatArray] | TokenCredits
Method = Callable[[Sequence[Rollout], Any], Credits]
Needs = Sequence[Need] | Callable[[Any], Sequence[Need]]


@dataclass(frozen=True, slots=True, eq=False)
class CreditMethod:
    """A method under its name. `parameters`: the struct that they are checked against; `needs`: see `Need`."""

    name: str
    method: Method
    parameters: type[msgspec.Struct] = NoParameters
    needs: Needs = ()

    def __call__(self, rollouts: Sequence[Rollout], parameters: Any) -> Credits:
        """As the function that was decorated."""
        return self.method(rollouts, parameters)


@dataclass(frozen=True, slots=True, eq=False)
class CreditRule:
    """A method with its parameters."""

    method: CreditMethod
    parameters: Any

    @property
    def needs(self) -> frozenset[Need]:
        """What of a batch has to be read for it."""
        needs = self.method.needs
        return frozenset(needs(self.parameters) if callable(needs) else needs)

    def __call__(self, rollouts: Sequence[Rollout]) -> Credits:
        """One float64 array [steps] a rollout, or TokenCredits; refused where the method gives anything else."""
        found = self.method(rollouts, self.parameters)
        per_token = isinstance(found, TokenCredits)
        rows: list[list[FloatArray]] = found.values if isinstance(found, TokenCredits) else [[row] for row in found]
        if len(rows) != len(rollouts):
            raise InvalidRequestError(f"credit {self.method.name} gave {len(rows)} of {len(rollouts)} rollouts")
        for rollout, pieces in zip(rollouts, rows, strict=True):
            shapes = [(int(length),) for length in rollout.lengths] if per_token else [(len(rollout),)]
            if [np.shape(piece) for piece in pieces] != shapes or not all(np.isfinite(each).all() for each in pieces):
                raise InvalidRequestError(
                    f"credit {self.method.name} gave no finite values in the shape of trajectory {rollout.name}"
                )
        return found


_METHODS: dict[str, CreditMethod] = {}
# What trainers and batches call the methods that take these credits.
_OF_TRAINERS = {
    "grpo": "group_relative", "dr_grpo": "group_relative", "rloo": "leave_one_out", "ppo": "gae",
    "reinforce": "discounted",
}  # fmt: skip


def credit_method(
    name: str, parameters: type[msgspec.Struct] = NoParameters, *, needs: Needs = ()
) -> Callable[[Method], CreditMethod]:
    """Decorator of a function of rollouts and parameters: it is a credit method of that name.

    `parameters`: a frozen msgspec struct that forbids unknown fields. ConfigError where the name is another's.
    """

    def register(function: Method) -> CreditMethod:
        there, address = _METHODS.get(name), (function.__module__, function.__qualname__)
        if there is not None and (there.method.__module__, there.method.__qualname__) != address:
            raise ConfigError(f"there is a credit method {name!r} already", path="method", hint="Choose another name")
        _METHODS[name] = CreditMethod(name, function, parameters, needs)
        return _METHODS[name]

    return register


def credit_names() -> list[str]:
    """The names of all methods that are registered or installed, sorted."""
    _load_own()
    return sorted({*_METHODS, *(point.name for point in entry_points(group=ENTRY_POINTS))})


def credit_by_name(name: str, /, **parameters: Any) -> CreditRule:
    """The method with its parameters; ConfigError names what is unknown, and what was probably meant.

    `name`: of a method of this package, one that was decorated, an entry point of the group `agentworld.credit`, or
    "module:attribute".
    """
    return credit_from(name, parameters)


def credit_from(name: str, parameters: Mapping[str, Any]) -> CreditRule:
    """As `credit_by_name`, with the parameters as a settings file gives them."""
    method = _method(name)
    return CreditRule(method, convert(parameters, method.parameters, f"credit {name}"))


def _method(name: str) -> CreditMethod:
    _load_own()
    if name in _METHODS:
        return _METHODS[name]
    if ":" in name:
        return _imported(name)
    found = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name in found:
        return _is_method(found[name].load(), name)
    near = difflib.get_close_matches(name, credit_names(), n=1)
    if name in _OF_TRAINERS:
        near = [_OF_TRAINERS[name]]
    hint = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(credit_names())}"
    raise ConfigError(f"no credit method {name!r}", path="method", hint=hint)


def _load_own() -> None:
    # They import this module.
    importlib.import_module("agentworld.credit.methods")


def _imported(name: str) -> CreditMethod:
    module, _, attribute = name.partition(":")
    try:
        return _is_method(getattr(importlib.import_module(module), attribute), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"credit method {name!r} cannot be loaded: {error}", path="method") from None


def _is_method(found: Any, name: str) -> CreditMethod:
    if not isinstance(found, CreditMethod):
        raise ConfigError(
            f"{name!r} is no credit method", path="method", hint="Decorate it with agentworld.credit.credit_method"
        )
    return found
