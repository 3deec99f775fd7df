"""Adapters over rows of ids, and whether the package whose objects they make is there."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from agentworld.errors import ConfigError
from agentworld.records import AdapterNeeds, Batch
from agentworld.trainers.adapters.samples import SampleOptions, Samples, read_samples

# package: objects of the trainer's own classes. plain: the same as dictionaries of lists or arrays. auto: objects where
# the package is installed.
Form = Literal["auto", "package", "plain"]


@dataclass(frozen=True, slots=True)
class RowAdapter:
    """An adapter whose layout is made of `Samples`. `lay`: of samples and options the layout."""

    name: str
    says: str
    needs: AdapterNeeds
    options: type[msgspec.Struct]
    lay: Callable[[Samples, Any], Any]

    def convert(self, batch: Batch, options: Any) -> Any:
        """See agentworld.records.Adapter."""
        return self.lay(read_samples(batch, options), options)


def needs_of(options: type[SampleOptions], *annotations: str) -> AdapterNeeds:
    """What the options' defaults make an adapter read."""
    if options().logprobs == "none":
        return AdapterNeeds(require=("tokens",), annotations=annotations)
    spaces = {"raw": ("raw",), "recomputable": ("raw", "temperature", "processed")}
    found = spaces.get(options().logprobs, ("raw", "temperature", "processed"))
    return AdapterNeeds(require=("tokens", "logprobs"), annotations=annotations, logprob_spaces=found)


def installed(module: str, form: Form, install: str) -> Any:
    """The module where objects are to be made of it, None where plain ones are; ConfigError says what to `install`."""
    if form == "plain":
        return None
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if (
            form == "auto"
            and isinstance(error, ModuleNotFoundError)
            and (error.name or "") in (module, module.split(".")[0])
        ):
            return None
        raise ConfigError(
            f"{module} cannot be imported: {error}", path="form", hint=f'pip install {install}, or say form = "plain"'
        ) from None
