"""Arguments of public calls that are of another type than they must be, as errors that say what to write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from agentworld.errors import InvalidRequestError
from agentworld.pool.bounds import check_name
from agentworld.records import check_id

T = TypeVar("T")

# Every kind of event that a pool writes; docs/reference/events.md says when.
EVENT_KINDS = (
    *("trajectory.created", "trajectory.completed", "trajectory.deleted", "step.appended", "exchange.failed"),
    *("reward.set", "feedback.added", "label.set", "annotation.set", "signal.waiting", "group.closed"),
    *(
        "pool.collected",
        "policy.set",
        "metrics.added",
        "decision.set",
        "curation.set",
        "curation.cleared",
        "gateway.paused",
        "gateway.resumed",
    ),
    *("batch.leased", "batch.acked", "batch.released", "batch.expired", "batch.dropped"),
    *("unit.poisoned", "unit.requeued"),
    *("dataset.frozen", "dataset.deleted"),
)


def check_event_kinds(kinds: Sequence[str] | None) -> frozenset[str] | None:
    """The kinds that a follower wants, None for all; InvalidRequestError where one of them is none."""
    if kinds is None:
        return None
    wanted = listed(kinds, "kinds of events", "kinds")
    for kind in wanted:
        if kind not in EVENT_KINDS:
            raise InvalidRequestError(
                f"no event is of kind {kind!r}", path="kinds", hint=f"Known: {', '.join(EVENT_KINDS)}"
            )
    return frozenset(wanted)


def check_event_filters(trajectory_id: str | None, channel: str | None) -> None:
    """InvalidRequestError where one of the two is there and cannot be the id or the channel of an event."""
    if trajectory_id is not None:
        check_id(trajectory_id, "trajectory_id")
    if channel is not None:
        check_name(channel, "channel")


def listed(sent: Iterable[T], what: str, path: str) -> Sequence[T]:
    """`sent` as a sequence; InvalidRequestError where it is a single record or no list at all."""
    if isinstance(sent, (list, tuple)):
        return sent
    if isinstance(sent, (str, bytes, Mapping, msgspec.Struct)) or not isinstance(sent, Iterable):
        raise InvalidRequestError(
            f"this must be a list of {what}, not {type(sent).__name__}", path=path, hint="Put a single one in brackets"
        )
    return list(sent)
