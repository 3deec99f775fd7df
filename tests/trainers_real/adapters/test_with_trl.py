"""TRL's trainers train on our rows as they are, and their losses are the formula on the same batch."""

import json
import shutil

import pytest

from agentworld.engines.builtin.pocket_tokenizer import POCKET_TOKENIZER_PATH
from tests.trainers.adapters.rollouts import batch, two_groups
from tests.trainers_real.adapters.running import needs, run

pytestmark = needs("trl")


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trl")
    (folder / "tokenizer").mkdir()
    shutil.copy(POCKET_TOKENIZER_PATH, folder / "tokenizer" / "tokenizer.json")
    words = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    (folder / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(words))
    groups, runs = two_groups(), two_groups().items[0].trajectories
    for each in runs:
        for step in each.steps:
            step.tools = None  # The template of the test knows none.
    return run(
        "trl",
        "with_trl",
        folder,
        groups=batch({item.key: item.trajectories for item in groups.items}, method="dr_grpo"),
        sft=batch({item.key: item.trajectories for item in groups.items}, unit="trajectory", method="sft"),
        pairs=batch({"a b": runs}, unit="pair", method="dpo"),
        judged=batch({each.trajectory.trajectory_id: [each] for each in runs}, unit="trajectory", method="kto"),
    )


def test_supervised_rows_are_trained_as_they_are(said):
    assert said["sft"]["rows"][0] == {
        "input_ids": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
        "labels": [-100, -100, -100, 4, -100, 6, -100, -100, 9, 10],
    }
    assert said["sft"]["loss"] == pytest.approx(said["sft"]["by_hand"], abs=1e-4)


def test_rollouts_of_the_pool_are_those_of_grpo(said):
    seen = said["grpo"]
    assert seen["completion_ids"][0] == [4, 5, 6, 7, 8, 9, 10]
    assert seen["prompt_ids"][0][-3:] == [1, 2, 3]
    assert seen["mask"][0] == [1, 0, 1, 0, 0, 1, 1]
    assert seen["mask"][2] == [1, 1, 0, 0, 0, 0, 0]
    assert seen["advantages"] == pytest.approx([0.5, -0.5, -0.25, 0.25])
    assert seen["loss"] == pytest.approx(seen["by_hand"], abs=1e-5)


def test_preferences_and_judged_replies_train(said):
    assert set(said["dpo"]["columns"]) == {"prompt", "chosen", "rejected", "margin"}
    assert said["dpo"]["loss"] > 0
    assert said["kto"]["labels"] == [True, False]


def test_the_loss_of_kto_is_that_of_trl(said):
    """With the divergence estimated from the same pairs of a question and the reply to another."""
    seen = said["kto"]
    assert seen["same_pairs"]
    assert seen["ours"] == pytest.approx(seen["loss"], abs=1e-6)
    assert seen["kl"] == pytest.approx(seen["said"], abs=1e-4)
    assert abs(seen["loss"] - 0.5) > 1e-3  # the policy is not the reference
    assert seen["kl"] > 0.01


def test_a_dataset_is_saved_and_loaded(said):
    assert said["datasets"]["type"] == "Dataset"
    rows = said["datasets"]["rows"]
    assert rows["response_ids"][0] == [4, 5, 6, 7, 8, 9, 10]
    assert rows["versions"][0] == [3, -1, 4, -1, -1, 4, 4]
