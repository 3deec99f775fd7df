"""The losses of policies and critics are those of verl on the same batch, in value and in each token's gradient."""

import pytest

from tests.trainers.adapters.rollouts import two_groups
from tests.trainers_real.adapters.running import needs, run

pytestmark = needs("verl")


def test_losses_and_gradients_are_those_of_verl(tmp_path):
    found = run("verl", "losses_of_verl", tmp_path, groups=two_groups())
    assert set(found) == {"grpo", "dapo", "gspo", "critic"}
    assert found["critic"]["returns"] < 1e-6
    assert found["critic"]["same_clip"] < 1e-6
    for seen in found.values():
        assert seen["ours"] == pytest.approx(seen["verl"], abs=1e-6)
        assert seen["apart"] < 1e-6 < seen["moved"]
        assert 0 < seen["clipped"] < seen["tokens"]
