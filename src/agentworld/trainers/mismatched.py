"""How far a policy is from its reference, as KTO estimates it: by replies to other questions. Pure numpy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agentworld.trainers.minibatches import Unit
from agentworld.trainers.rows import Row


def mismatched_rows(units: Sequence[Unit]) -> list[Row]:
    """One row a unit: what its first row begins with up to the first sampled token, and then what the unit before it
    (before the first, the last one) goes on with from there, of which the same tokens are marked.

    Ethayarajh et al. 2024 (arXiv:2402.01306), section 4.1: with pairs (x, y') of one update, max(0, mean of log p(y'|x)
    - reference) stands for KL(policy || reference). It is biased, but has the same sign of change, and needs nothing
    sampled.
    """
    rows = [unit[0] for unit in units]
    begins = [int(np.argmax(row.mask)) for row in rows]
    found = []
    for place, row in enumerate(rows):
        other, begin = rows[place - 1], begins[place - 1]
        opening = row.ids[: begins[place]]
        ids = np.concatenate([opening, other.ids[begin:]])
        mask = np.concatenate([np.zeros(len(opening), np.bool_), other.mask[begin:]])
        zeros = np.zeros(len(ids), np.float32)
        found.append(Row(row.trajectory_id, ids, mask, zeros, zeros))
    return found
