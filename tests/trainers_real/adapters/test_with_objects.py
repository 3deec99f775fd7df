"""Tinker and verifiers take what we make of their classes, and read the same out of it."""

import pytest

from tests.trainers.adapters.rollouts import batch, two_groups
from tests.trainers_real.adapters.running import needs, run

pytestmark = needs("objects")
IDS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
MASK = [False, False, False, True, False, True, False, False, True, True]


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    runs = batch({"g1": two_groups().items[0].trajectories})
    return run("objects", "with_objects", tmp_path_factory.mktemp("objects"), groups=two_groups(), runs=runs)


def test_tinkers_datum(said):
    first = said["policy"][0]
    assert first["input"] == IDS[:-1]
    assert first["target_tokens"] == {"dtype": "int64", "data": IDS[1:]}
    assert first["logprobs"]["dtype"] == first["advantages"]["dtype"] == "float32"
    logprobs = first["logprobs"]["data"]
    assert [value != 0 for value in logprobs] == [value != 0 for value in first["advantages"]["data"]] == MASK[1:]
    assert logprobs[2] == pytest.approx(-0.1)
    assert said["cross_entropy"][0]["weights"]["data"] == [float(bit) for bit in MASK[1:]]


def test_branches_of_verifiers_are_the_ids_that_were_seen(said):
    first, second = said["traces"]
    (branch,) = first["branches"]
    assert (branch["ids"], branch["mask"]) == (IDS, MASK)
    assert branch["roles"] == ["user", "assistant", "tool", "assistant"]
    assert branch["tools"] == ["look"]
    assert [value != 0 for value in branch["logprobs"]] == MASK
    assert branch["advantages"][3] == pytest.approx(1, abs=1e-5)
    assert second["branches"][0]["advantages"][3] == pytest.approx(-1, abs=1e-5)
    assert (first["reward"], second["reward"]) == (1.0, 0.0)
