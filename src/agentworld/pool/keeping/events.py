"""What stays of an event once the trajectory that it tells of was deleted."""

from __future__ import annotations

from typing import Any

# Words of ours, never a caller's: names and sources of rewards, labels and the like are a caller's.
_OURS = ("outcome", "status")


def kept_data(data: dict[str, Any]) -> dict[str, Any]:
    """The part of an event's data that says nothing of what the trajectory held."""
    return {name: data[name] for name in _OURS if name in data}
