"""What is said of versions: how two differ, whether one is still what it was, and where a row comes from."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from agentworld.records import DatasetVersion, Decision, Evaluation, Policy, PolicyNote, Sampling, SplitCount

SAMPLES = 20
"""So many rows of each change are named where nobody says how many."""
PROBLEMS = 100
"""So many rows that are not ok are named where nobody says how many."""
Change = Literal["added", "removed", "changed"]
RowState = Literal["ok", "changed", "missing", "deleted", "reduced"]


class RowChange(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A trajectory that one of two versions has, or that both have otherwise. `what`: of steps, content (of steps that
    both have), rewards, labels, feedback, weight, split, task and cluster, those that differ; unknown where a deletion
    on request left nothing to tell it by. `split` and `new_split`: in the first and in the second version.
    """

    trajectory_id: str
    change: Change
    what: list[str] = []
    split: str | None = None
    new_split: str | None = None


class DatasetDiff(msgspec.Struct, kw_only=True, frozen=True):
    """How the second version differs from the first. `what`: how many changed rows differ in what. `moved`: rows that
    went from one split to another, as "train -> test". `samples`: the first rows of each change, by trajectory id.
    """

    version: str
    other: str
    added: int = 0
    removed: int = 0
    changed: int = 0
    same: int = 0
    what: dict[str, int] = {}
    moved: dict[str, int] = {}
    splits: dict[str, SplitCount] = {}
    other_splits: dict[str, SplitCount] = {}
    samples: list[RowChange] = []

    @property
    def is_empty(self) -> bool:
        """Whether both hold the same."""
        return not (self.added or self.removed or self.changed)


class RowVerdict(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A row that is not what it was. changed: `what` says how. missing: the trajectory is not there, and nobody asked
    for that. deleted: it was deleted on request, at `at` for `reason`. reduced: something that it was compared with was
    deleted so, and what was said in that comparison went too; the rest cannot be told from what was frozen.
    """

    position: int
    trajectory_id: str
    split: str
    state: RowState
    what: list[str] = []
    reason: str | None = None
    at: float | None = None


class Verification(msgspec.Struct, kw_only=True, frozen=True):
    """What came of computing every digest of a version again. `manifest`: what is wrong with the manifest or with the
    rows as a whole. `problems`: the first rows that are not ok; the counts are of all.
    """

    version: str
    rows: int = 0
    steps: int = 0
    ok: int = 0
    changed: int = 0
    missing: int = 0
    deleted: int = 0
    reduced: int = 0
    manifest: list[str] = []
    problems: list[RowVerdict] = []

    @property
    def is_intact(self) -> bool:
        """Whether everything is what it was, but for what was deleted on request."""
        return not (self.changed or self.missing or self.manifest)

    @property
    def is_ok(self) -> bool:
        """Whether everything is what it was."""
        return self.is_intact and not (self.deleted or self.reduced)


class RewardNote(msgspec.Struct, kw_only=True, frozen=True):
    """A reward that was set on the trajectory, or on one of its steps: its value then, and who set it when."""

    name: str
    value: float
    source: str
    at: float
    step_id: str | None = None


class StepOrigin(msgspec.Struct, kw_only=True, frozen=True):
    """The call that a step came from. `created_at`: in seconds since the epoch. `retry_count`: how often the gateway
    had tried before.
    """

    step_id: str
    digest: str | None = None
    exchange_id: str | None = None
    dialect: str | None = None
    model: str | None = None
    requested_model: str | None = None
    policy: Policy | None = None
    sampling: Sampling | None = None
    token_source: str | None = None
    created_at: float = 0.0
    latency_ms: float | None = None
    retry_count: int = 0


class RowOrigin(msgspec.Struct, kw_only=True, frozen=True):
    """Where a row comes from: its trajectory, the calls of its steps, the file that it was imported from, and what let
    it in. `decisions`, `evaluations` and `rewards` are those that are there now; `policies` were in force when the
    version was made.
    """

    version: str
    position: int
    split: str
    digest: str
    trajectory_id: str
    state: RowState = "ok"
    reason: str | None = None
    deleted_at: float | None = None
    task: dict[str, Any] | None = None
    task_key: str | None = None
    cluster: str | None = None
    group_id: str | None = None
    agent: str | None = None
    channel: str | None = None
    status: str | None = None
    created_at: float | None = None
    completed_at: float | None = None
    imported: dict[str, Any] | None = None
    steps: list[StepOrigin] = []
    rewards: list[RewardNote] = []
    decisions: list[Decision] = []
    evaluations: list[Evaluation] = []
    policies: list[PolicyNote] = []


def fractions_missed(version: DatasetVersion) -> list[str]:
    """Lines about splits that have clearly another share of the rows than was asked for."""
    lines = []
    for split, fraction in version.selection.splits.fractions.items():
        there = version.splits[split].rows if split in version.splits else 0
        wanted = fraction * version.rows
        if abs(there - wanted) > max(1.0, 0.02 * version.rows) or (not there and version.rows > 1):
            lines.append(f"split {split} has {there:,} of {version.rows:,} rows, {wanted:,.0f} were asked for")
    return lines
