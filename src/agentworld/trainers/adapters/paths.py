"""Which steps of a trajectory extend which, id for id, and the rows that come of it: steps, chains or paths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from agentworld.credit import StepTree
from agentworld.credit.trees import Shared
from agentworld.errors import InvalidRequestError
from agentworld.records import Step
from agentworld.trainers.rows import has_images

IntArray = npt.NDArray[np.int64]
# step: each step is a row. chain: steps that extend one another are one row, where a prompt breaks the chain a new one
# begins; every sampled token is marked in one row. tree: a row for each path from a root to a leaf.
Rows = Literal["step", "chain", "tree"]
# The steps of a row in order, each with the share of its weight that it has in this row.
Path = list[tuple[int, float]]


def check_ids(step: Step) -> None:
    """InvalidRequestError where a step has no ids, a mask of another length, or images, which ids leave out."""
    if not step.prompt_ids or not step.response_ids:
        raise InvalidRequestError(
            f"step {step.step_id} has no token ids",
            path="ids",
            hint='Lease with require = ["tokens"], and capture with an engine that gives ids',
        )
    if step.response_mask is not None and len(step.response_mask) != len(step.response_ids):
        raise InvalidRequestError(
            f"step {step.step_id} has a mask of {len(step.response_mask)} for {len(step.response_ids)} ids", path="mask"
        )
    if has_images(step):
        raise InvalidRequestError(
            f"step {step.step_id} has images, which rows of ids leave out",
            path="ids",
            hint="Leave such trajectories out with where, or export them with their images",
        )


def whole_ids(step: Step) -> IntArray:
    """Prompt and reply of a step, int64 [prompt + reply]."""
    return np.concatenate([np.asarray(step.prompt_ids or (), np.int64), np.asarray(step.response_ids or (), np.int64)])


def prefix_parents(steps: Sequence[Step], keys: Sequence[object], whole: Sequence[IntArray] | None = None) -> list[int]:
    """Of each step the earlier one of the same key whose prompt and reply are the longest beginning of its prompt, -1
    where there is none. Of equals the one on record as its parent, or else the first. `whole`: their `whole_ids`.
    """
    whole = [whole_ids(step) for step in steps] if whole is None else whole
    parents: list[int] = []
    for index, step in enumerate(steps):
        size = len(step.prompt_ids or ())
        prompt = whole[index][:size]
        fits = [
            earlier
            for earlier in range(index)
            if keys[earlier] == keys[index]
            and len(whole[earlier]) <= size
            and whole[earlier][-1] == prompt[len(whole[earlier]) - 1]
        ]
        fits.sort(key=lambda each: (-len(whole[each]), steps[each].step_id != step.parent_step_id, each))
        parents.append(next((each for each in fits if np.array_equal(whole[each], prompt[: len(whole[each])])), -1))
    return parents


def lay_paths(parents: Sequence[int], rows: Rows, shared: Shared) -> list[Path]:
    """The rows as steps with shares. `shared`: what becomes of steps that several paths of a tree have in common."""
    count = len(parents)
    if rows == "step":
        return [[(index, 1.0)] for index in range(count)]
    if rows == "chain":
        return _chains(parents)
    if rows == "tree":
        tree = StepTree(parents)
        found = zip(tree.paths(), tree.path_shares(shared), strict=True)
        return [list(zip(path.tolist(), shares.tolist(), strict=True)) for path, shares in found]
    raise InvalidRequestError(f"no rows {rows!r}", path="rows", hint=f"Use {', '.join(get_args(Rows))}")


def _chains(parents: Sequence[int]) -> list[Path]:
    """Each step goes on the row that ends with its parent; where another took it, a row of its own begins."""
    found: list[Path] = []
    ends: dict[int, Path] = {}
    for index, parent in enumerate(parents):
        row = ends.pop(parent, None)
        if row is None:
            row = []
            found.append(row)
        row.append((index, 1.0))
        ends[index] = row
    return found
