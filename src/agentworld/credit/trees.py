"""The steps of one trajectory as a tree, and how what lies below a fork is brought together. Pure numpy.

A trajectory of n steps is given by `parents`, int64 [n]: the index of the step that each one continues, -1 for a root.
A trajectory may have several roots, and steps may stand in any order. A step without children is a leaf. Every step
appears once, however many paths go through it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from agentworld.errors import InvalidRequestError

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
# What a step sees of several continuations. mean_over_leaves: each leaf below counts the same, so the value is the mean
# over all paths through the step. mean_over_children: each continuation counts the same, however it branches later.
# max: the best continuation, as if the policy took that one.
Fork = Literal["mean_over_leaves", "mean_over_children", "max"]
# Where a trajectory's reward comes. every_leaf: at the end of each branch. last_step: at the last step in order alone.
Ends = Literal["every_leaf", "last_step"]
# What becomes of a step that several paths share, where each path is a row of its own. mean: in each of its K rows with
# weight 1 / K. first_path: in the first row alone. per_path: in each row with weight 1.
Shared = Literal["mean", "first_path", "per_path"]


def chain(steps: int) -> IntArray:
    """The parents of a trajectory without forks: [-1, 0, 1, ...], shape [steps]."""
    return np.arange(-1, steps - 1, dtype=np.int64)


class StepTree:
    """A tree of n steps. Raises InvalidRequestError where a parent is no step or steps are their own ancestors.

    `parents` int64 [n]. `children`: the indices of each step's continuations, in order. `order`: all steps, parents
    before their children. `leaf_counts` int64 [n]: the leaves at or below each step.
    """

    def __init__(self, parents: Sequence[int] | IntArray) -> None:
        self.parents: IntArray = np.asarray(parents, dtype=np.int64)
        if self.parents.ndim != 1:
            raise InvalidRequestError(f"parents must be one row, not of shape {self.parents.shape}", path="parents")
        count = len(self.parents)
        wrong = np.flatnonzero((self.parents < -1) | (self.parents >= count))
        if len(wrong):
            raise InvalidRequestError(
                f"step {wrong[0]} continues step {self.parents[wrong[0]]} of {count}",
                path="parents",
                hint="Give indices of steps, and -1 for a root",
            )
        self.children: list[list[int]] = [[] for _ in range(count)]
        self.order: list[int] = []
        for step, parent in enumerate(self.parents.tolist()):
            if parent < 0:
                self.order.append(step)
            else:
                self.children[parent].append(step)
        for step in self.order:  # Grows while it is read.
            self.order.extend(self.children[step])
        if len(self.order) != count:
            lost = min(set(range(count)) - set(self.order))
            raise InvalidRequestError(f"step {lost} is its own ancestor, or below one that is", path="parents")
        self.leaf_counts: IntArray = np.zeros(count, dtype=np.int64)
        for step in reversed(self.order):
            below = self.children[step]
            self.leaf_counts[step] = sum(int(self.leaf_counts[child]) for child in below) if below else 1

    def __len__(self) -> int:
        return len(self.parents)

    @property
    def leaves(self) -> IntArray:
        """The indices of the steps that nothing continues, in order."""
        return np.asarray([step for step, below in enumerate(self.children) if not below], dtype=np.int64)

    def ends(self, where: Ends = "every_leaf", last: int = -1) -> IntArray:
        """The steps at which the trajectory's reward comes; `last`: the last step, -1 for the last in order."""
        if where == "every_leaf" or not len(self):
            return self.leaves
        return np.asarray([last % len(self)], dtype=np.int64)

    def combine(self, values: Sequence[float], step: int, fork: Fork) -> float:
        """What a step with children sees of `values`, one of each step, as `fork` says."""
        below = self.children[step]
        if len(below) == 1:
            return float(values[below[0]])
        if fork == "max":
            return float(max(values[child] for child in below))
        if fork == "mean_over_children":
            return float(sum(values[child] for child in below) / len(below))
        counts = self.leaf_counts
        return float(sum(values[child] * int(counts[child]) for child in below) / int(counts[step]))

    def mean_over_roots(self, values: FloatArray) -> float:
        """The mean of the roots' values, each weighing as many leaves as it has; 0 without steps."""
        roots = np.flatnonzero(self.parents < 0)
        if not len(roots):
            return 0.0
        counts = self.leaf_counts[roots]
        return float((values[roots] * counts).sum() / counts.sum())

    def cut(self, labels: Sequence[Hashable]) -> StepTree:
        """The tree without the links between steps of different labels (one a step), such as of two agents."""
        parents = [
            parent if parent >= 0 and labels[parent] == labels[step] else -1
            for step, parent in enumerate(self.parents.tolist())
        ]
        return StepTree(parents)

    def roots(self) -> IntArray:
        """The root above each step, shape [n]; a root is its own."""
        above = np.arange(len(self), dtype=np.int64)
        for step in self.order:
            if self.parents[step] >= 0:
                above[step] = above[self.parents[step]]
        return above

    def paths(self) -> list[IntArray]:
        """The steps from a root to each leaf, one array a leaf, in the order of the leaves."""
        found = []
        for leaf in self.leaves.tolist():
            path = [leaf]
            while (parent := int(self.parents[path[-1]])) >= 0:
                path.append(parent)
            found.append(np.asarray(path[::-1], dtype=np.int64))
        return found

    def path_shares(self, shared: Shared = "mean") -> list[FloatArray]:
        """The share of its weight that each step has in each of `paths()`, shapes as those.

        With mean and first_path the shares of a step sum to 1 over all paths, so that a step counts once.
        """
        seen = np.zeros(len(self), dtype=np.bool_)
        found: list[FloatArray] = []
        for path in self.paths():
            if shared == "mean":
                found.append(1.0 / self.leaf_counts[path].astype(np.float64))
            elif shared == "first_path":
                found.append(np.where(seen[path], 0.0, 1.0))
                seen[path] = True
            else:
                found.append(np.ones(len(path)))
        return found
