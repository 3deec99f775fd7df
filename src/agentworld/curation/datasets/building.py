"""The second pass over a selection: each trajectory is read, digested, and put into the pool as a row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from agentworld.curation.datasets.chosen import Chosen
from agentworld.curation.datasets.digests import StepDigests, VersionDigest, row_digest, task_digest
from agentworld.curation.datasets.dividing import Divided, Placed
from agentworld.errors import NotFoundError
from agentworld.pool.arrays import StepArrays
from agentworld.pool.dataset_rules import group_digest
from agentworld.pool.keeping.records import Progress
from agentworld.pool.protocol import Pool
from agentworld.query.rules import WEIGHT
from agentworld.records import DatasetRow, Feedback, FrozenStep, Selection, SplitCount, Step, Trajectory

_CHUNK = 100
_TRIES = 5  # of a portion of which something was taken away meanwhile
_FEEDBACK = 1_000  # targets in one question


class _Portion:
    """Rows that are put together, with the tokens of their replies. `first`: the clusters that begin with them."""

    def __init__(self) -> None:
        self.rows: list[DatasetRow] = []
        self.tokens: list[int] = []
        self.first: dict[int, str] = {}
        self.gone = self.without_steps = 0


class Builder:
    """Builds the rows of one version. `gone`: trajectories that were selected in the first pass and are not any more;
    `without_steps`: those of which no step can be taken.
    """

    def __init__(self, pool: Pool, selection: Selection, building: int, divided: Divided, progress: Progress) -> None:
        self.rows = self.gone = self.without_steps = 0
        self.splits = {name: SplitCount() for name in selection.splits.fractions}
        self.digest = VersionDigest()
        self._pool = pool
        self._chosen = Chosen(selection)
        self._building = building
        self._divided = divided
        self._progress = progress
        self._digests = StepDigests()
        self._scratch = divided.scratch
        self._scratch.make("first (cluster INTEGER PRIMARY KEY, trajectory_id TEXT)")

    def build(self) -> None:
        """Put all rows."""
        done = 0
        for placed in self._divided.pages(_CHUNK):
            self._build(placed)
            done += len(placed)
            self._progress("freeze", done, self._divided.count)

    def _build(self, placed: Sequence[Placed]) -> None:
        """Put the rows of some trajectories; read anew where one of them was taken away before it was pinned."""
        for left in reversed(range(_TRIES)):
            portion = self._read(placed)
            try:
                if portion.rows:
                    self._pool.put_dataset_rows(self._building, portion.rows)
            except NotFoundError as error:
                if not left or not (error.path or "").startswith("rows"):
                    raise
            else:
                self._count(portion)
                return

    def _read(self, placed: Sequence[Placed]) -> _Portion:
        records = self._chosen.records(self._pool, [one.trajectory_id for one in placed])
        portion = _Portion()
        for one in placed:
            record = records.get(one.trajectory_id)
            if record is None:
                portion.gone += 1
                continue
            steps, length = self._steps(record.trajectory_id)
            if not steps:
                portion.without_steps += 1
                continue
            first = self._first(portion, int(self._divided.division.cluster[one.key]), record.trajectory_id)
            portion.rows.append(self._row(record, steps, one, first, self.rows + len(portion.rows)))
            portion.tokens.append(length)
        said = _feedback(self._pool, portion.rows)
        for row in portion.rows:
            row.feedback = said.get(row.trajectory_id, [])
            row.digest = row_digest(row)
        return portion

    def _first(self, portion: _Portion, cluster: int, trajectory_id: str) -> str:
        """The smallest trajectory id of a cluster, which is this one's where the cluster has no row yet."""
        found: str | None = self._scratch.one("SELECT trajectory_id FROM first WHERE cluster = ?", (cluster,))
        return portion.first.setdefault(cluster, trajectory_id) if found is None else found

    def _count(self, portion: _Portion) -> None:
        """Take in what was put."""
        self._scratch.many("INSERT INTO first VALUES (?, ?)", portion.first.items())
        self.gone += portion.gone
        self.without_steps += portion.without_steps
        self.rows += len(portion.rows)
        for row, length in zip(portion.rows, portion.tokens, strict=True):
            self.digest.add(row)
            counted = self.splits[row.split]
            self.splits[row.split] = msgspec.structs.replace(
                counted,
                rows=counted.rows + 1,
                steps=counted.steps + len(row.steps),
                response_tokens=counted.response_tokens + length,
            )

    def _steps(self, trajectory_id: str) -> tuple[list[FrozenStep], int]:
        """The frozen steps of a trajectory, and the tokens of their replies."""
        frozen: list[FrozenStep] = []
        length = 0
        arrays: dict[str, StepArrays] | None = None
        for step in self._chosen.steps(self._pool, trajectory_id):
            if arrays is None:
                arrays = arrays_of(self._pool, trajectory_id)
            frozen.append(frozen_step(step, self._digests.of(step, arrays.get(step.step_id))))
            length += step.response_length or 0
        return frozen, length

    def _row(
        self, record: Trajectory, steps: list[FrozenStep], placed: Placed, first: str, position: int
    ) -> DatasetRow:
        labels = dict(record.labels)
        return DatasetRow(
            position=position,
            trajectory_id=record.trajectory_id,
            split=self._divided.split_of(placed.key),
            steps=steps,
            task_key=placed.task,
            cluster=first,
            group_key=None if record.group_id is None else group_digest(record.group_id),
            task_digest=task_digest(record.task),
            rewards=_floats(record.rewards),
            reward=None if record.reward is None else float(record.reward),
            labels=labels,
            weight=_weight(labels),
        )


def arrays_of(pool: Pool, trajectory_id: str) -> dict[str, StepArrays]:
    """The ids, masks and log-probabilities of a trajectory's steps by id; shared prefixes are held once."""
    return {one.step_id: one for one in pool.sequences(trajectory_id=trajectory_id)}


def frozen_step(step: Step, digest: str) -> FrozenStep:
    """What is kept of a step."""
    return FrozenStep(
        step_id=step.step_id,
        digest=digest,
        rewards=_floats(step.rewards),
        reward=None if step.reward is None else float(step.reward),
        labels=dict(step.labels),
    )


def _feedback(pool: Pool, rows: Iterable[DatasetRow]) -> dict[str, list[Feedback]]:
    """What was said of rows and of their steps, by trajectory, in the order of time and then of ids."""
    owner = {row.trajectory_id: row.trajectory_id for row in rows}
    of_step = {step.step_id: row.trajectory_id for row in rows for step in row.steps}
    found: list[tuple[str, Feedback]] = []
    names = list(owner)
    for begin in range(0, len(names), _FEEDBACK):
        said = pool.feedback_on(trajectory_ids=names[begin : begin + _FEEDBACK])
        found += [(str(one.trajectory_id), one) for one in said]
    names = list(of_step)
    for begin in range(0, len(names), _FEEDBACK):
        said = pool.feedback_on(step_ids=names[begin : begin + _FEEDBACK])
        found += [(of_step[str(one.step_id)], one) for one in said]
    by_row: dict[str, list[Feedback]] = {}
    for trajectory_id, one in sorted(found, key=lambda each: (each[1].created_at, each[1].feedback_id or "")):
        by_row.setdefault(trajectory_id, []).append(one)
    return by_row


def _floats(values: dict[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items()}


def _weight(labels: dict[str, object]) -> float | None:
    """What curation weighs it with, which is a label."""
    value = labels.get(WEIGHT)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
