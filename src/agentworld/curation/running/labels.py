"""Labels that findings ask for, beside those that are there: only what differs is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agentworld.curation.checks import Finding
from agentworld.curation.checks.finding import PREFIX
from agentworld.curation.checks.registry import CHECKED, FAILED
from agentworld.curation.running.report import RunReport
from agentworld.errors import GoneError
from agentworld.pool.protocol import Pool
from agentworld.records import BatchTrajectory, Feedback, Trajectory, exact_json

MOST = 250  # labels in one transaction, for which others wait
_VERSION = "1"  # of the label of checks that failed
_NOTHING: Mapping[str, Any] = {}


class Labels:
    """Labels of some trajectories: what is there, and what checks found. For one part of a run."""

    def __init__(self, pool: Pool, report: RunReport) -> None:
        self._pool = pool
        self._report = report
        self._there: dict[str, dict[str | None, Mapping[str, Any]]] = {}
        self._changes: dict[str, dict[tuple[str | None, str], Feedback]] = {}

    def read(self, record: BatchTrajectory) -> None:
        """Take in which labels a trajectory (None) and its steps have."""
        there: dict[str | None, Mapping[str, Any]] = {each.step_id: each.labels for each in record.steps}
        there[None] = record.trajectory.labels
        self._there[record.trajectory.trajectory_id] = there

    def put(self, trajectory_id: str, ran: Mapping[str, str], findings: Iterable[Finding]) -> None:
        """What the checks that `ran`, by name with their versions, found on a trajectory that was read, and no more."""
        there = self._there[trajectory_id]
        wanted: dict[tuple[str | None, str], Finding] = {}
        failed: dict[str, str] = {}
        for each in findings:
            if each.check == FAILED:
                failed.update(each.evidence["errors"])
            else:
                wanted[each.step_id, each.check] = each
        changes = self._changes.setdefault(trajectory_id, {})
        for (step_id, check), finding in wanted.items():
            if not _same(there.get(step_id, _NOTHING).get(PREFIX + check), finding.value):
                changes[step_id, check] = finding.feedback()
        for step_id, labels in there.items():
            for name in labels:
                check = name.removeprefix(PREFIX)
                # A check that failed has said nothing, and what it said before stands.
                if name != check and check in ran and check not in failed and (step_id, check) not in wanted:
                    changes[step_id, check] = _gone(trajectory_id, step_id, check, ran[check])
        self._fail(trajectory_id, ran, failed)

    def mark(self, trajectory_id: str, digest: str) -> None:
        """Say that the trajectory was checked."""
        if self._there[trajectory_id][None].get(CHECKED) != digest:
            self._changes.setdefault(trajectory_id, {})[None, CHECKED] = Feedback(
                kind="label", name=CHECKED, value=digest, trajectory_id=trajectory_id, source="curate run"
            )

    def put_alone(self, record: Trajectory, finding: Finding) -> None:
        """What a check found on a trajectory of which nothing else was read."""
        if not _same(record.labels.get(finding.label), finding.value):
            self._changes.setdefault(finding.trajectory_id, {})[None, finding.check] = finding.feedback()

    def write(self) -> None:
        """Write what has changed; durable when this returns. Those of one trajectory are in one transaction."""
        part: list[Feedback] = []
        for changes in self._changes.values():
            if part and len(part) + len(changes) > MOST:
                self._send(part)
                part = []
            part += changes.values()
        if part:
            self._send(part)
        self._there, self._changes = {}, {}

    def _send(self, labels: list[Feedback]) -> None:
        for start in range(0, len(labels), 1000):
            part = labels[start : start + 1000]
            try:
                self._pool.add_signals(part)
            except GoneError:
                # Somebody deleted one of them since it was read: the others get theirs.
                for each in part:
                    try:
                        self._pool.add_signals([each])
                    except GoneError:
                        continue
                    self._count(each)
                continue
            for each in part:
                self._count(each)

    def _count(self, label: Feedback) -> None:
        if label.name == CHECKED:
            return
        name = (label.name or "").removeprefix(PREFIX)
        counts = self._report.removed if label.value is None else self._report.labels
        counts[name] = counts.get(name, 0) + 1

    def _fail(self, trajectory_id: str, ran: Mapping[str, str], failed: Mapping[str, str]) -> None:
        """The one label of all checks that failed on a trajectory: of those that did not run now, as it was."""
        self._report.errors.update(failed)
        changes = self._changes[trajectory_id]
        stored = self._there[trajectory_id][None].get(PREFIX + FAILED)
        pending = changes.get((None, FAILED))
        value = stored if pending is None else pending.value
        before = set(str(value).split()) if value is not None else set()
        now = before - ran.keys() | failed.keys()
        if now == before:
            return
        if now:
            finding = Finding(
                check=FAILED,
                version=_VERSION,
                trajectory_id=trajectory_id,
                value=" ".join(sorted(now)),
                evidence={"errors": dict(failed)},
            )
            changes[None, FAILED] = finding.feedback()
        elif stored is None:
            del changes[None, FAILED]
        else:
            changes[None, FAILED] = _gone(trajectory_id, None, FAILED, _VERSION)


def _gone(trajectory_id: str, step_id: str | None, check: str, version: str) -> Feedback:
    """The signal that takes a label away."""
    return Feedback(
        kind="label",
        name=PREFIX + check,
        trajectory_id=trajectory_id,
        step_id=step_id,
        source=f"check:{check}@{version}",
    )


def _same(there: Any, value: Any) -> bool:
    """Whether it is that very value: 1 is not true."""
    return there is not None and exact_json.encode(there) == exact_json.encode(value)
