"""What other packages add by entry points: layouts, checks, formats."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Any

from agentworld.errors import ConfigError


def load_extensions(group: str, noun: str) -> Iterator[Any]:
    """What the entry points of a group name, in no order that means anything; ConfigError names the package's module
    where one cannot be loaded. `noun`: what they are, for the message.
    """
    for point in entry_points(group=group):
        try:
            found = point.load()
        except Exception as error:
            raise ConfigError(
                f"the {noun} {point.name} of {point.value} cannot be loaded: {error}",
                path=point.name,
                hint=f"Mend or uninstall it; the entry point is of the group {group}",
            ) from error
        yield found
