"""Corrections for older policies: the ratio, its cap, and what each version's came to."""

import numpy as np
import pytest

from agentworld.credit import importance_weights, token_versions, weights_by_version
from agentworld.errors import ConfigError, InvalidRequestError
from agentworld.records import Policy, Step, VersionSpan


def test_weights_are_ratios_up_to_the_cap():
    behaviour, current = np.log([0.5, 0.2, 0.1, 0.4]), np.log([0.25, 0.3, 0.9, 0.1])
    mask = [1, 1, 1, 0]
    assert importance_weights(behaviour, current, mask, cap=2.0) == pytest.approx([0.5, 1.5, 2.0, 0.0])
    assert importance_weights(behaviour, current, mask, cap=np.inf)[2] == pytest.approx(9.0)
    # Of a sequence: 0.5 x 1.5 x 9, and what was not sampled has no part in it.
    assert importance_weights(behaviour, current, mask, cap=10, level="sequence") == pytest.approx([6.75] * 3 + [0])
    assert importance_weights(behaviour, behaviour, mask) == pytest.approx([1, 1, 1, 0])
    assert importance_weights([-9000.0], [0.0], [1], cap=3.0) == pytest.approx([3.0])
    # A weighted mean over the older policy's samples is the mean under the current one.
    chance = np.random.default_rng(0)
    old, new, value = np.array([0.7, 0.2, 0.1]), np.array([0.3, 0.3, 0.4]), np.array([1.0, -2.0, 5.0])
    drawn = chance.choice(3, size=20_000, p=old)
    weights = importance_weights(np.log(old)[drawn], np.log(new)[drawn], np.ones(len(drawn)), cap=np.inf)
    assert (weights * value[drawn]).mean() == pytest.approx((new * value).sum(), abs=0.1)
    for wrong in (lambda: importance_weights([np.nan], [0.0], [1]), lambda: importance_weights([0.0], [0.0, 1.0], [1])):
        with pytest.raises(InvalidRequestError):
            wrong()
    for wrong in ({"cap": 0}, {"level": "batch"}):
        with pytest.raises(ConfigError):
            importance_weights([0.0], [0.0], [1], **wrong)
    assert importance_weights([np.nan, 0.0], [0.0, 0.0], [0, 1]) == pytest.approx([0, 1])


def test_each_version_is_told_apart():
    step = Step(
        step_id="s", trajectory_id="t", response_ids=[1, 2, 3, 4], policy=Policy("m", "r", 3),
        version_spans=(VersionSpan(0, 3), VersionSpan(2, 4), VersionSpan(3, 6)),
    )  # fmt: skip
    versions = token_versions(step)
    assert versions.tolist() == [3, 3, 4, 6]
    assert token_versions(Step(step_id="s", trajectory_id="t", response_length=2)).tolist() == [-1, -1]
    behaviour, current = np.log([0.5, 0.1, 0.5, 0.5]), np.log([0.5, 0.5, 0.5, 0.1])
    found = weights_by_version(behaviour, current, [1, 1, 1, 0], versions)
    assert [(one.version, one.tokens, one.mean, one.capped) for one in found] == [
        (3, 2, pytest.approx(3.0), 0.5), (4, 1, pytest.approx(1.0), 0.0)]  # fmt: skip
