"""verl computes on our DataProto what it computes on its own."""

import numpy as np
import pytest

from tests.trainers.adapters.rollouts import batch, two_groups
from tests.trainers_real.adapters.running import needs, run

pytestmark = needs("verl")


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    groups = two_groups()
    groups = batch({item.key: item.trajectories for item in groups.items}, method="dr_grpo")
    return run("verl", "with_verl", tmp_path_factory.mktemp("verl"), groups=groups)


def test_it_is_saved_loaded_and_cut_as_its_own(said):
    assert (said["rows"], said["halves"]) == (4, [2, 2])
    assert said["turns"] == [4, 4, 2, 2]
    assert {"uid", "data_source", "reward_model", "extra_info"} <= set(said["objects"])


def test_its_advantages_are_ours(said):
    """Dr. GRPO's; with the division verl's deviation is the sample's, so that of two it is smaller by the root of 2."""
    ours, mask = np.asarray(said["advantages"]), np.asarray(said["mask"])
    assert np.allclose(said["made"]["False"], ours * mask, atol=1e-6)
    divided = np.asarray(said["made"]["True"])
    assert np.allclose(divided, np.sign(ours) * mask / np.sqrt(2), atol=1e-4)


def test_its_policy_loss_is_the_formula_over_the_sampled_tokens(said):
    mask = np.asarray(said["mask"]) == 1
    ratio = np.exp(np.asarray(said["new"]) - np.asarray(said["old"]))
    advantages = np.asarray(said["advantages"])
    terms = -np.minimum(ratio * advantages, np.clip(ratio, 0.8, 1.2) * advantages)
    terms = np.where(advantages < 0, np.minimum(terms, -3 * advantages), terms)  # Its bound on the other side.
    assert said["losses"]["token-mean"] == pytest.approx(terms[mask].mean(), abs=1e-6)
    rows = [row[own].mean() for row, own in zip(terms, mask, strict=True)]
    assert said["losses"]["seq-mean-token-mean"] == pytest.approx(np.mean(rows), abs=1e-6)
    assert said["gradient_outside"] == 0
