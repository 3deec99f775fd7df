"""Whether a version is still what it was: every digest of it computed again from what the pool holds now."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from agentworld.curation.datasets.building import arrays_of
from agentworld.curation.datasets.digests import StepDigests, VersionDigest, manifest_digest, row_digest, task_digest
from agentworld.curation.datasets.reading import Deleted, rows_of, steps_of, whole_trajectory
from agentworld.curation.datasets.results import PROBLEMS, RowState, RowVerdict, Verification
from agentworld.pool.keeping.records import Progress, no_progress
from agentworld.pool.protocol import Pool
from agentworld.records import DatasetRow, DatasetVersion, SplitCount


def verify_dataset(
    pool: Pool,
    version: str,
    *,
    problems: int = PROBLEMS,
    told: Callable[[RowVerdict], None] = lambda row: None,
    progress: Progress = no_progress,
) -> Verification:
    """Compute the digest of every step, row and manifest again. `problems`: how many rows the result names; each that
    is not ok is told to `told`.
    """
    manifest = pool.get_dataset(version)
    rows = _Rows(pool)
    digest = VersionDigest()
    splits: dict[str, SplitCount] = {}
    counts: dict[RowState, int] = {"ok": 0, "changed": 0, "missing": 0, "deleted": 0, "reduced": 0}
    named: list[RowVerdict] = []
    order: list[str] = []
    last = ""
    count = 0
    for row in rows_of(pool, manifest.version):
        digest.add(row)
        if row.position != count or (count and row.trajectory_id <= last):
            order = [f"row {row.position} ({row.trajectory_id}) is not in its place"]
        last, count = row.trajectory_id, count + 1
        verdict = rows.verify(row)
        counts[verdict.state] += 1
        counted = splits.get(row.split, SplitCount())
        splits[row.split] = SplitCount(
            rows=counted.rows + 1,
            steps=counted.steps + len(row.steps),
            response_tokens=counted.response_tokens + rows.length,
        )
        if verdict.state != "ok":
            told(verdict)
            if len(named) < problems:
                named.append(verdict)
        if count % 10 == 0:
            progress("verify", count, manifest.rows)
    progress("verify", count, manifest.rows)
    whole = not (counts["changed"] or counts["missing"] or counts["deleted"])
    return Verification(
        version=manifest.version,
        rows=count,
        steps=sum(one.steps for one in splits.values()),
        manifest=[*_manifest_problems(manifest, digest.hexdigest(), count, splits, whole), *order],
        problems=named,
        **counts,
    )


class _Rows:
    """Looks at rows one after the other. `length`: tokens of the replies of the last one."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._deleted = Deleted(pool)
        self._digests = StepDigests()
        self.length = 0

    def verify(self, row: DatasetRow) -> RowVerdict:
        """What became of a row."""
        self.length = 0
        record = whole_trajectory(self._pool, row.trajectory_id)
        if record is None:
            tomb = self._deleted.find(row.trajectory_id)
            if tomb is None:
                return _verdict(row, "missing")
            return msgspec.structs.replace(_verdict(row, "deleted"), reason=tomb.reason, at=tomb.at)
        what = self._steps(row)
        if task_digest(record.task) != row.task_digest:
            what.append("its task is another one")
        if row_digest(row) == row.digest:
            return _verdict(row, "changed" if what else "ok", what)
        compared = self._compared(row)
        if compared is None or what:
            return _verdict(row, "changed", [*what, "what the row says of it is not what was frozen"])
        return _verdict(row, "reduced", [f"what was said in comparison with {compared}, which was deleted, is gone"])

    def _steps(self, row: DatasetRow) -> list[str]:
        """What is wrong with the steps of a row."""
        left = {step.step_id: step.digest for step in row.steps}
        wrong: list[str] = []
        arrays = arrays_of(self._pool, row.trajectory_id)
        for step in steps_of(self._pool, row.trajectory_id, include=("messages",)):
            known = left.pop(step.step_id, None)
            if known is None:
                continue
            self.length += step.response_length or 0
            if self._digests.of(step, arrays.get(step.step_id)) != known:
                wrong.append(f"step {step.step_id} has another content")
        return [*wrong, *(f"step {name} is not there" for name in left)]

    def _compared(self, row: DatasetRow) -> str | None:
        """What the row was compared with and was deleted on request since; None where there is none."""
        others = (one.other_id for one in row.feedback if one.kind == "comparison" and one.other_id is not None)
        return next((other for other in others if self._deleted.find(other) is not None), None)


def _verdict(row: DatasetRow, state: RowState, what: list[str] | None = None) -> RowVerdict:
    return RowVerdict(
        position=row.position, trajectory_id=row.trajectory_id, split=row.split, state=state, what=what or []
    )


def _manifest_problems(
    manifest: DatasetVersion, digest: str, rows: int, splits: dict[str, SplitCount], whole: bool
) -> list[str]:
    found = []
    if manifest_digest(manifest) != manifest.manifest_digest:
        found.append("the manifest is not what was frozen: its digest is another one")
    if digest != manifest.digest or manifest.version != f"{manifest.name}@{digest}":
        found.append(f"the rows together have the digest {digest}, not that of the version")
    if rows != manifest.rows:
        found.append(f"{rows} rows are there, the manifest counts {manifest.rows}")
    counted = {name: one for name, one in manifest.splits.items() if one.rows}
    there = {name: (one.rows, one.steps) for name, one in splits.items()}
    if {name: (one.rows, one.steps) for name, one in counted.items()} != there:
        found.append("the manifest counts other rows or steps of splits than there are")
    elif whole and counted != splits:
        found.append("the manifest counts other tokens than there are")
    return found
