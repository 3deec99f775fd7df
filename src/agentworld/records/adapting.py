"""Batches in the layouts of trainers: adapters by name, found as entry points, so that this package imports none."""

from __future__ import annotations

import difflib
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol

import msgspec

from agentworld.config import convert
from agentworld.errors import ConfigError
from agentworld.records.batch import Batch

ADAPTER_GROUP = "agentworld.adapters"


class AdapterNeeds(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an adapter reads of a batch, for whoever leases it.

    `require`: what the spec of the lease has to ask for (`BatchSpec.require`). `annotations`: those that it reads where
    they are there. `logprob_spaces`: the spaces of log-probabilities that it takes by default.
    """

    require: tuple[str, ...] = ("tokens",)
    annotations: tuple[str, ...] = ()
    logprob_spaces: tuple[str, ...] = ()


class Adapter(Protocol):
    """One layout. An entry point of the group `agentworld.adapters` leads to an object of this kind.

    `says`: what it gives, in one line. `options`: the struct of its options, all with defaults, which forbids unknown
    fields.
    """

    name: str
    says: str
    needs: AdapterNeeds
    options: type[msgspec.Struct]

    def convert(self, batch: Batch, options: Any) -> Any:
        """The batch in the trainer's layout. InvalidRequestError names the step that lacks what the layout needs;
        ConfigError the package that is not installed.
        """


def adapter_names() -> list[str]:
    """The names of all adapters that are installed, sorted."""
    return sorted(_points())


def adapter_by_name(name: str) -> Adapter:
    """The adapter of that name; ConfigError lists those that are installed, or says why it cannot be loaded."""
    points = _points()
    if name not in points:
        near = difflib.get_close_matches(str(name), points, n=1)
        known = f"Installed: {', '.join(sorted(points)) or 'none'}; adapters are entry points of {ADAPTER_GROUP}"
        hint = f"Did you mean {near[0]}? {known}" if near else known
        raise ConfigError(f"no adapter {name!r}", path="to", hint=hint)
    try:
        found = points[name].load()
    except Exception as error:
        raise ConfigError(
            f"the adapter {name!r} cannot be loaded: {error}", path="to", hint=f"It is at {points[name].value}"
        ) from error
    if not callable(getattr(found, "convert", None)) or not hasattr(found, "options"):
        raise ConfigError(f"{points[name].value} is no adapter", path="to", hint="See agentworld.records.Adapter")
    adapter: Adapter = found
    return adapter


def adapt(batch: Batch, name: str, /, **options: Any) -> Any:
    """The batch in the layout of the adapter of that name; ConfigError names an option that it does not take."""
    adapter = adapter_by_name(name)
    return adapter.convert(batch, convert(options, adapter.options, f"adapter {name}"))


def _points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ADAPTER_GROUP)}
