"""What a trajectory from elsewhere must be, before a store takes it; the same in every store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from agentworld.errors import AgentWorldError, GoneError, InvalidRequestError
from agentworld.pool import rules
from agentworld.pool.bounds import check_seconds, checked_trajectory, storable
from agentworld.pool.intake import Prepared, prepare
from agentworld.pool.plain_values import as_number
from agentworld.pool.rejections import kept_text
from agentworld.pool.signal_rules import CheckedSignal, check_signal
from agentworld.records import (
    AddedTrajectory,
    NewTrajectory,
    TerminalStatus,
    WholeOutcome,
    WholeTrajectory,
    check_id,
    exact_json,
)

IMPORT = "import"
"""The key of a trajectory's metadata that tells what it was read from."""
DIGEST = "digest"


class CheckedWhole(msgspec.Struct, frozen=True):
    """A trajectory that may be stored, as far as can be said without the pool. `created_at`, `completed_at`: None for
    the moment at which it is stored.
    """

    trajectory_id: str
    new: NewTrajectory
    steps: list[Prepared]
    status: TerminalStatus
    signals: list[CheckedSignal]
    created_at: float | None
    completed_at: float | None

    def answer(self, metadata: Mapping[str, Any]) -> AddedTrajectory:
        """What becomes of it where a trajectory with this metadata is there."""
        mine, its = _digest(self.new.metadata), _digest(metadata)
        if mine is not None and mine == its:
            return AddedTrajectory(trajectory_id=self.trajectory_id, outcome="known")
        reason = "another trajectory is there under this id"
        return AddedTrajectory(trajectory_id=self.trajectory_id, outcome="differs", reason=reason)


def check_whole(sent: object) -> CheckedWhole:
    """Check one; InvalidRequestError names the field that cannot be stored."""
    if not isinstance(sent, WholeTrajectory):
        raise InvalidRequestError(f"this must be a WholeTrajectory, not {type(sent).__name__}")
    if not isinstance(sent.new, NewTrajectory):
        raise InvalidRequestError(f"this must be a NewTrajectory, not {type(sent.new).__name__}", path="new")
    trajectory_id = check_id(sent.new.trajectory_id or "", "new.trajectory_id")
    if sent.new.group_id is not None:
        check_id(sent.new.group_id, "new.group_id")
    try:
        new = checked_trajectory(sent.new)
    except AgentWorldError as error:
        raise _within(error, "new") from None
    with storable("origin."):
        origin = exact_json.decode(exact_json.encode(sent.origin), dict[str, str])
    if origin:
        if IMPORT in new.metadata:
            raise InvalidRequestError(
                "the metadata says already where it is from", path="new.metadata.import", hint="Leave origin empty"
            )
        new.metadata = {**new.metadata, IMPORT: origin}
    if sent.status not in ("finished", "failed", "truncated", "abandoned"):
        raise InvalidRequestError(
            f"{sent.status!r} is no way to end a trajectory",
            path="status",
            hint="Known: finished, failed, truncated, abandoned",
        )
    steps = _checked_steps(sent, trajectory_id)
    named = {one.step.step_id for one in steps}
    signals = [_on(check_signal(one, f"rewards[{n}]"), trajectory_id, named) for n, one in enumerate(sent.rewards)]
    signals += [_on(check_signal(one, f"feedback[{n}]"), trajectory_id, named) for n, one in enumerate(sent.feedback)]
    times = [_time(sent.created_at, "created_at"), _time(sent.completed_at, "completed_at")]
    return CheckedWhole(trajectory_id, new, steps, sent.status, signals, *times)


def refused(sent: object, error: AgentWorldError) -> AddedTrajectory:
    """What became of one that cannot be stored."""
    new = getattr(sent, "new", None)  # of one that is not even checked, too
    trajectory_id = rules.printable(getattr(new, "trajectory_id", None) or "")
    outcome: WholeOutcome = "deleted" if isinstance(error, GoneError) else "refused"
    return AddedTrajectory(trajectory_id=trajectory_id, outcome=outcome, reason=kept_text(error.one_line()))


def step_there(step_id: str, number: int, trajectory_id: str) -> InvalidRequestError:
    """The error for a step whose id another trajectory's step has."""
    return InvalidRequestError(
        f"step {step_id!r} is there in trajectory {trajectory_id!r}",
        path=f"steps[{number}].step_id",
        hint="Use ids that no other step has",
    )


def _checked_steps(sent: WholeTrajectory, trajectory_id: str) -> list[Prepared]:
    if not isinstance(sent.steps, (list, tuple)):
        raise InvalidRequestError(f"this must be a list of Step, not {type(sent.steps).__name__}", path="steps")
    checked: list[Prepared] = []
    named: set[str] = set()
    for number, step in enumerate(sent.steps):
        try:
            one = prepare(step)
            if step.trajectory_id != trajectory_id:
                raise InvalidRequestError(f"the step is of trajectory {step.trajectory_id!r}", path="trajectory_id")
            if step.step_id in named:
                raise InvalidRequestError(f"step {step.step_id!r} is there twice", path="step_id")
            for name in ("parent_step_id", "supersedes"):
                other = getattr(step, name)
                if other is not None and other not in named:
                    raise InvalidRequestError(f"no step {other!r} comes before it", path=name)
        except AgentWorldError as error:
            raise _within(error, f"steps[{number}]") from None
        named.add(step.step_id)
        checked.append(one)
    return checked


def _on(signal: CheckedSignal, trajectory_id: str, steps: set[str]) -> CheckedSignal:
    """The signal, which is on this trajectory or on a step of it."""
    if signal.record.trajectory_id not in (None, trajectory_id):
        raise InvalidRequestError(
            f"it is on trajectory {signal.record.trajectory_id!r}", path=f"{signal.path}.trajectory_id"
        )
    if signal.target == "step" and signal.target_id not in steps:
        raise InvalidRequestError(f"the trajectory has no step {signal.target_id!r}", path=f"{signal.path}.step_id")
    return signal


def _time(value: float, path: str) -> float | None:
    number = as_number(value)
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise InvalidRequestError("this must be seconds since the epoch, or 0 for now", path=path)
    check_seconds(number, path)
    return float(number) if number else None


def _within(error: AgentWorldError, path: str) -> InvalidRequestError:
    place = f"{path}.{error.path}" if error.path else path
    return InvalidRequestError(error.message, path=place, hint=error.hint)


def _digest(metadata: Mapping[str, Any]) -> str | None:
    """What the metadata says of the digest of what the trajectory was read from."""
    origin = metadata.get(IMPORT)
    found = origin.get(DIGEST) if isinstance(origin, Mapping) else None
    return found if isinstance(found, str) else None
