"""What metrics must be to be kept, and how they are told in an event."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from agentworld.errors import InvalidRequestError
from agentworld.pool.arguments import listed
from agentworld.pool.bounds import MAX_INTEGER, check_integer, check_name, storable, wrong_type
from agentworld.records import Metrics, check_id

MOST_AT_ONCE, MOST_VALUES = 1000, 1024


def check_metrics(sent: Sequence[Metrics]) -> list[Metrics]:
    """The records; InvalidRequestError names the first that cannot be kept, and none is."""
    found = listed(sent, "Metrics", "metrics")
    if len(found) > MOST_AT_ONCE:
        raise InvalidRequestError(f"{len(found)} at once, at most {MOST_AT_ONCE}", path="metrics")
    for number, each in enumerate(found):
        _check(each, f"metrics[{number}]")
    return list(found)


def metrics_data(metrics: Metrics) -> dict[str, Any]:
    """The data of the event."""
    return {"run": metrics.run, "kind": metrics.kind, "step": metrics.step, "values": metrics.values}


def _check(metrics: Metrics, path: str) -> None:
    if not isinstance(metrics, Metrics):
        raise wrong_type(metrics, "a Metrics", path)
    with storable(f"{path}."):
        msgspec.json.decode(msgspec.json.encode(metrics), type=Metrics)
    check_id(metrics.run, f"{path}.run")
    check_id(metrics.channel, f"{path}.channel")
    check_integer(metrics.step, f"{path}.step", highest=MAX_INTEGER)
    if not 0 < len(metrics.values) <= MOST_VALUES:
        raise InvalidRequestError(
            f"{len(metrics.values)} values, must be from 1 to {MOST_VALUES}", path=f"{path}.values"
        )
    for name, value in metrics.values.items():
        check_name(name, f"{path}.values")
        if value is not None and not math.isfinite(value):
            raise InvalidRequestError(f"{name} is {value}", path=f"{path}.values", hint="Send null in its place")
