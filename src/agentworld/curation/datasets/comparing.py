"""How two versions differ, read side by side in the order of trajectory ids."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from agentworld.curation.datasets.digests import canonical, row_digest
from agentworld.curation.datasets.reading import rows_of
from agentworld.curation.datasets.results import SAMPLES, Change, DatasetDiff, RowChange
from agentworld.pool.keeping.records import Progress, no_progress
from agentworld.pool.protocol import Pool
from agentworld.records import DatasetRow


def diff_datasets(
    pool: Pool, version: str, other: str, *, samples: int = SAMPLES, progress: Progress = no_progress
) -> DatasetDiff:
    """What `other` has that `version` has not, the reverse, and what both have otherwise; of one dataset or of two.

    `samples`: rows of each change that are named.
    """
    first, second = pool.get_dataset(version), pool.get_dataset(other)
    counts: dict[str, int] = {}
    what: dict[str, int] = {}
    moved: dict[str, int] = {}
    named: dict[Change, list[RowChange]] = {"added": [], "removed": [], "changed": []}
    total = first.rows + second.rows
    done = 0
    for change in _changes(pool, first.version, second.version):
        done += 1 if change is not None and change.change != "changed" else 2
        if done % 100 < 2:
            progress("compare", done, total)
        if change is None:
            counts["same"] = counts.get("same", 0) + 1
            continue
        counts[change.change] = counts.get(change.change, 0) + 1
        for each in change.what:
            what[each] = what.get(each, 0) + 1
        if "split" in change.what:
            step = f"{change.split} -> {change.new_split}"
            moved[step] = moved.get(step, 0) + 1
        if len(named[change.change]) < samples:
            named[change.change].append(change)
    progress("compare", total, total)
    return DatasetDiff(
        version=first.version,
        other=second.version,
        what=what,
        moved=moved,
        splits=first.splits,
        other_splits=second.splits,
        samples=[one for found in named.values() for one in found],
        **counts,
    )


def row_changes(pool: Pool, version: str, other: str) -> Iterator[RowChange]:
    """Every row that differs, by trajectory id."""
    first, second = pool.get_dataset(version), pool.get_dataset(other)
    return (change for change in _changes(pool, first.version, second.version) if change is not None)


def _changes(pool: Pool, first: str, second: str) -> Iterator[RowChange | None]:
    """A change, or None, for each trajectory of either."""
    mine, yours = rows_of(pool, first), rows_of(pool, second)
    left, right = next(mine, None), next(yours, None)
    while left is not None or right is not None:
        if right is None or (left is not None and left.trajectory_id < right.trajectory_id):
            assert left is not None
            yield RowChange(trajectory_id=left.trajectory_id, change="removed", split=left.split)
            left = next(mine, None)
        elif left is None or right.trajectory_id < left.trajectory_id:
            yield RowChange(trajectory_id=right.trajectory_id, change="added", new_split=right.split)
            right = next(yours, None)
        else:
            yield _compared(left, right)
            left, right = next(mine, None), next(yours, None)


def _compared(left: DatasetRow, right: DatasetRow) -> RowChange | None:
    if left.digest == right.digest:
        return None
    what = differences(left, right)
    return RowChange(
        trajectory_id=left.trajectory_id, change="changed", what=what, split=left.split, new_split=right.split
    )


def differences(left: DatasetRow, right: DatasetRow) -> list[str]:
    """In what two rows of one trajectory differ; `unknown` where one was scrubbed, and what it held is gone."""
    mine, yours = ({step.step_id: step for step in row.steps} for row in (left, right))
    both = mine.keys() & yours.keys()
    found = {
        "steps": list(mine) != list(yours),
        "content": any(mine[name].digest != yours[name].digest for name in both),
        "split": left.split != right.split,
        "cluster": left.cluster != right.cluster,
    }
    if row_digest(left) == left.digest and row_digest(right) == right.digest:
        found |= {
            "rewards": _said(left, "reward") != _said(right, "reward")
            or any(_said(mine[name], "reward") != _said(yours[name], "reward") for name in both),
            "labels": canonical(left.labels) != canonical(right.labels)
            or any(canonical(mine[name].labels) != canonical(yours[name].labels) for name in both),
            "feedback": canonical(left.feedback) != canonical(right.feedback),
            "weight": left.weight != right.weight,
            "task": (left.task_key, left.task_digest) != (right.task_key, right.task_digest),
        }
    else:
        found["unknown"] = not any(found.values())
    return [name for name, differs in found.items() if differs]


def _said(one: msgspec.Struct, name: str) -> tuple[object, object]:
    return getattr(one, name), getattr(one, f"{name}s")
