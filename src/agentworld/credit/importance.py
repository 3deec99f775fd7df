"""Weights that correct a loss for tokens that an older policy sampled, told apart by version. Pure numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from agentworld.credit.trees import FloatArray, IntArray
from agentworld.errors import ConfigError, InvalidRequestError
from agentworld.records import Step

# token: each token has the ratio of its own probability. sequence: all tokens of a reply have the product of theirs,
# which is unbiased, but spreads over orders of magnitude in long replies.
Level = Literal["token", "sequence"]


@dataclass(frozen=True, slots=True)
class VersionWeights:
    """What the weights of one version's tokens came to: how many `tokens`, their `mean` before the cap, and the share
    that was `capped`.
    """

    version: int
    tokens: int
    mean: float
    capped: float


def token_versions(step: Step) -> IntArray:
    """The policy's version at each reply token, int64 [tokens]; -1 where the step has no policy.

    A reply that went on under new weights has several (`version_spans`).
    """
    length = step.response_length if step.response_ids is None else len(step.response_ids)
    versions = np.full(length or 0, -1 if step.policy is None else step.policy.version, dtype=np.int64)
    for span in step.version_spans:
        versions[span.start :] = span.version
    return versions


def importance_weights(
    behaviour: Sequence[float] | FloatArray | npt.NDArray[np.float32],
    current: Sequence[float] | FloatArray | npt.NDArray[np.float32],
    mask: npt.ArrayLike,
    *,
    cap: float = 2.0,
    level: Level = "token",
) -> FloatArray:
    """w = min(p_current / p_behaviour, cap), float64 [tokens]; 0 where the policy did not sample.

    Truncated importance sampling (Ionides 2008, doi:10.1198/106186008X320456); at the level of tokens the weight of the
    decoupled loss of AReaL (arXiv:2505.24298, equation 5), whose proximal policy is `current`. `behaviour`, `current`:
    log-probabilities [tokens] in one space. `cap`: inf for none. InvalidRequestError where a sampled token has no
    finite one.
    """
    sampled = np.asarray(mask, dtype=np.float64) > 0
    before, now = np.asarray(behaviour, dtype=np.float64), np.asarray(current, dtype=np.float64)
    if not before.shape == now.shape == sampled.shape:
        raise InvalidRequestError(
            f"{before.shape} and {now.shape} log-probabilities and a mask of {sampled.shape} do not go together",
            path="behaviour",
        )
    if not cap > 0:
        raise ConfigError(f"cap must be over 0, not {cap}", path="cap")
    if not np.isfinite(before[sampled]).all() or not np.isfinite(now[sampled]).all():
        raise InvalidRequestError(
            "a sampled token has no log-probability", path="behaviour", hint="Lease with require = ['logprobs']"
        )
    log_ratio = np.where(sampled, now - before, 0.0)
    if level == "sequence":
        log_ratio = np.full_like(log_ratio, log_ratio.sum())
    elif level != "token":
        raise ConfigError(f"no level {level!r}", path="level", hint="Use token or sequence")
    # Capped before exp, which would overflow.
    return np.where(sampled, np.exp(np.minimum(log_ratio, np.log(cap))), 0.0)


def weights_by_version(
    behaviour: FloatArray, current: FloatArray, mask: npt.ArrayLike, versions: IntArray, *, cap: float = 2.0
) -> list[VersionWeights]:
    """How far each version has drifted from the current policy, oldest first: with growing lag the mean leaves 1 and
    more weights meet the cap, which says what lag the correction still bears.
    """
    sampled = np.asarray(mask, dtype=np.float64) > 0
    free = importance_weights(behaviour, current, mask, cap=np.inf)
    found = []
    for version in np.unique(versions[sampled]).tolist():
        own = free[sampled & (versions == version)]
        found.append(VersionWeights(version, len(own), float(own.mean()), float((own > cap).mean())))
    return found
