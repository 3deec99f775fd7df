"""How unsure a judge is, from 0 to 1, of what it has said several times: what people should look at first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence


def spread(values: Sequence[float]) -> float:
    """Twice the standard deviation of values from 0 to 1, over all of them: 0 where they are equal, 1 where half are 0
    and half are 1, which is the most that there can be.
    """
    mean = math.fsum(values) / len(values)
    return min(1.0, 2.0 * math.sqrt(math.fsum((each - mean) ** 2 for each in values) / len(values)))


def without_margin(shares: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """1 less the margin of each vote, by weight: a vote with the share p on its one side has the margin |2p - 1|."""
    whole = math.fsum(abs(weights[name]) for name in shares)
    lost = math.fsum(abs(weights[name]) * (1.0 - abs(2.0 * share - 1.0)) for name, share in shares.items())
    return lost / whole if whole else 0.0
