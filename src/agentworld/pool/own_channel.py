"""Writes of who may write to one channel alone: what they name is looked at in the transaction that writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from agentworld.errors import ForbiddenError, InvalidRequestError
from agentworld.pool.results import Rejected
from agentworld.pool.signal_rules import CheckedSignal
from agentworld.records import Feedback, Step, check_id


class Named(NamedTuple):
    """What a write names, by id. `there`: it cannot be written before these trajectories are there, as nobody can say
    whose they will be.
    """

    trajectories: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    steps: frozenset[str] = frozenset()
    there: bool = False


def named_by_steps(steps: Iterable[Step | Rejected]) -> Named:
    """What steps name that can be written to; what is rejected is not written."""
    sent = [step for step in steps if isinstance(step, Step) and _is_named(step)]
    groups = frozenset(step.group_id for step in sent if step.group_id is not None)
    return Named(frozenset(step.trajectory_id for step in sent), groups)


def _is_named(step: Step) -> bool:
    """Whether its ids are such; a step whose ids are not is rejected by itself, and nothing in the pool has them."""
    try:
        check_id(step.trajectory_id, "trajectory_id")
        if step.group_id is not None:
            check_id(step.group_id, "group_id")
    except InvalidRequestError:
        return False
    return True


def named_by_signals(signals: Iterable[CheckedSignal]) -> Named:
    """What signals are on, and what is compared with it."""
    ids: dict[str, set[str]] = {"trajectory": set(), "step": set()}
    for signal in signals:
        ids[signal.target].add(signal.target_id)
        record = signal.record
        if record.trajectory_id is not None:
            ids["trajectory"].add(record.trajectory_id)
        if isinstance(record, Feedback) and record.other_id is not None:
            ids[signal.target].add(record.other_id)
    return Named(frozenset(ids["trajectory"]), steps=frozenset(ids["step"]), there=True)


def check_own(channel: str, named: Named, found: Mapping[tuple[str, str], str]) -> None:
    """ForbiddenError where something named is of another channel. `found`: the channels of what is there, by kind
    (trajectory, group or step) and id.
    """
    for kind, ids in (("trajectory", named.trajectories), ("group", named.groups), ("step", named.steps)):
        for one in sorted(ids):
            its = found.get((kind, one))
            if its is None and named.there:
                raise ForbiddenError(
                    f"the {kind} {one[:128]!r} is not there yet, so that nobody can say whose it will be",
                    hint="Send this after it, or with a key that is bound to no channel",
                )
            if its not in (None, channel):
                raise ForbiddenError(
                    f"this is for the channel {channel!r} alone, the {kind} {one!r} is in {its!r}",
                    path="channel",
                    hint="Use a key for that channel, or one that is bound to none",
                )
