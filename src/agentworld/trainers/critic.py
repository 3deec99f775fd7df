"""Values of a critic in the place of stored ones: before each reply token, and after what was cut off."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from agentworld.credit import CreditSpec
from agentworld.records import Batch, BatchTrajectory
from agentworld.trainers.rows import Row, real_items, rows_step

# Arrays of rows and steps that the critic gives; no annotation is called so.
VALUES, BOOTSTRAP, RETURNS = "/values", "/bootstrap", "/returns"
ValuesOf = Callable[[Sequence[Row]], list[npt.NDArray[np.float32]]]


def valued(batch: Batch, values_of: ValuesOf) -> Batch:
    """A batch whose steps have the annotations VALUES [reply tokens] and BOOTSTRAP; the given one is left as it is.

    `values_of`: of rows of L tokens the value after each of them, [L].
    """
    members = [member for item in real_items(batch) for member in item.trajectories]
    of_members = [_rows(member) for member in members]
    rows = [row for rows in of_members for row in rows]
    found = iter(values_of(rows))
    known: dict[int, BatchTrajectory] = {}
    for member, own in zip(members, of_members, strict=True):
        steps = {step.step_id: step for step in member.steps}
        annotations = dict(member.annotations)
        for row in own:
            after = next(found)
            for step in (steps[step_id] for step_id in row.step_ids):
                begin, count = len(step.prompt_ids or ()), len(step.response_ids or ())
                annotations[step.step_id] = {
                    **annotations.get(step.step_id, {}),
                    VALUES: after[begin - 1 : begin + count - 1],
                    BOOTSTRAP: float(after[begin + count - 1]),
                }
        known[id(member)] = msgspec.structs.replace(member, annotations=annotations)
    items = [
        msgspec.structs.replace(item, trajectories=[known.get(id(each), each) for each in item.trajectories])
        for item in batch.items
    ]
    return msgspec.structs.replace(batch, items=items)


def critic_credit(spec: CreditSpec) -> CreditSpec:
    """The credit with the critic's values in the place of stored ones."""
    return msgspec.structs.replace(spec, values=VALUES, bootstrap=BOOTSTRAP)


def add_returns(rows: Sequence[Row]) -> None:
    """Give rows RETURNS, what the critic is trained towards: their advantages and VALUES, added; 0 outside the mask."""
    for row in rows:
        row.arrays[RETURNS] = np.where(row.mask, row.advantages + row.arrays[VALUES], np.float32(0.0))


def _rows(member: BatchTrajectory) -> list[Row]:
    """The rows of a trajectory, also of one that counts in its group's statistics alone."""
    rows: list[Row] = []
    for step in member.steps:
        rows_step(rows, step, 0.0, False)
    return rows
