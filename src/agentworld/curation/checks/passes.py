"""Run checks over trajectories and groups that were read. A check that fails is on record and stops no other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, cast, runtime_checkable

from agentworld.curation.checks.finding import Finding, Found
from agentworld.curation.checks.private_rules import excerpt
from agentworld.curation.checks.reading import Run
from agentworld.curation.checks.registry import FAILED, Check, known
from agentworld.curation.checks.settings import CheckContext, CheckSettings
from agentworld.records import BatchTrajectory

_MOST_VALUES = 5


@runtime_checkable
class PoolCheck(Protocol):
    """A check over a whole pool that costs what is new. Made as `Class(settings)` or `Class.load(state, settings)`."""

    def add(self, run: BatchTrajectory | Run) -> None:
        """Take in one trajectory; again under its id replaces it."""
        ...

    def result(self) -> list[Finding]:
        """What follows for those added since the last call, and for others that they change."""
        ...

    def save(self) -> bytes:
        """The state, to be loaded later; call it after the last `result`."""
        ...


class PoolCheckClass(Protocol):
    """What makes a check of a pool."""

    def __call__(self, settings: CheckSettings | None = None) -> PoolCheck:
        """One that has seen nothing."""
        ...

    def load(self, state: bytes, settings: CheckSettings | None = None) -> PoolCheck:
        """One that goes on from a saved state; StateError where it cannot."""
        ...


def run_checks(trajectory: BatchTrajectory | Run, context: CheckContext | None = None) -> list[Finding]:
    """The findings of the checks of steps and of trajectories, in the order of the checks' names.

    What a check of steps found is said of the trajectory too: its values joined, with how many steps and the first.
    A `Run` made of the trajectory can be given to this and to checks of the pool, so that it is read once.
    A check that raised gives one finding `failed` that names it.
    """
    context = context or CheckContext()
    run = Run.of(trajectory)
    findings: list[Finding] = []
    failed: dict[str, str] = {}
    trajectory_id = run.trajectory.trajectory_id
    for each in _of(("step", "trajectory"), context):
        try:
            if each.scope == "step":
                found = _by_step(run, each, context)
                findings += _findings(each, trajectory_id, found)
                if found:
                    findings.append(_summary(each, trajectory_id, found))
            else:
                findings += _findings(each, trajectory_id, each.function(run, context))
        except Exception as error:
            failed[each.name] = _told(error)
    if failed:
        findings.append(_failed(trajectory_id, failed))
    return findings


def run_group_checks(members: Sequence[BatchTrajectory], context: CheckContext | None = None) -> list[Finding]:
    """The findings of the checks of groups, on the trajectories of one group."""
    context = context or CheckContext()
    findings: list[Finding] = []
    failed: dict[str, str] = {}
    for each in _of(("group",), context):
        try:
            found = list(each.function(members, context))
            findings += [_finding(each, str(item.trajectory_id), item) for item in found]
        except Exception as error:
            failed[each.name] = _told(error)
    if failed:
        findings += [_failed(member.trajectory.trajectory_id, failed) for member in members]
    return findings


def pool_checks(context: CheckContext | None = None) -> dict[str, PoolCheckClass]:
    """The classes of the checks of pools that are asked for and need nothing else, by name."""
    context = context or CheckContext()
    return {each.name: cast(PoolCheckClass, each.function) for each in _of(("pool",), context) if not each.optional}


def _of(scopes: tuple[str, ...], context: CheckContext) -> Iterator[Check]:
    there = known()
    return (there[name] for name in sorted(there) if there[name].scope in scopes and context.runs(name))


def _findings(each: Check, trajectory_id: str, found: Iterable[Found]) -> list[Finding]:
    return [_finding(each, trajectory_id, item) for item in found]


def _finding(each: Check, trajectory_id: str, item: Found) -> Finding:
    return Finding(
        check=each.name,
        version=each.version,
        trajectory_id=trajectory_id,
        step_id=item.step_id,
        value=item.value,
        evidence=item.evidence,
    )


def _by_step(run: Run, each: Check, context: CheckContext) -> list[Found]:
    """One a step, as a step has one label of a name: the first, with how many more there were."""
    first: dict[str, Found] = {}
    more: dict[str, int] = {}
    for turn in run.turns:
        for item in each.function(turn, run, context):
            step_id = item.step_id or turn.step.step_id
            if step_id in first:
                more[step_id] = more.get(step_id, 0) + 1
            else:
                first[step_id] = Found(item.value, item.evidence, step_id)
    for step_id, count in more.items():
        item = first[step_id]
        first[step_id] = Found(item.value, {**item.evidence, "more": count}, step_id)
    return list(first.values())


def _summary(each: Check, trajectory_id: str, found: list[Found]) -> Finding:
    values: list[Any] = list(dict.fromkeys(item.value for item in found))
    value = values[0] if len(values) == 1 else " ".join(sorted(map(str, values))[:_MOST_VALUES])
    evidence = {"steps": len({item.step_id for item in found}), "first": found[0].step_id}
    return _finding(each, trajectory_id, Found(value, evidence))


def _failed(trajectory_id: str, failed: dict[str, str]) -> Finding:
    names = " ".join(sorted(failed))
    return Finding(check=FAILED, version="1", trajectory_id=trajectory_id, value=names, evidence={"errors": failed})


def _told(error: Exception) -> str:
    # What a check raises may quote what it read.
    return excerpt(f"{type(error).__name__}: {error}")
