"""verl's own data sets load the exports, and its losses are on what was sampled."""

import json
import shutil
import subprocess

import pytest

from tests.trainers_real.exported import TOKENIZER, export_all
from tests.trainers_real.installed import HERE, is_installed, python

pytestmark = [
    pytest.mark.trainers,
    pytest.mark.skipif(not is_installed("verl"), reason="not installed: python -m tests.trainers_real.installed verl"),
]
NEWLINE = TOKENIZER.encode("\n")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """What verl said of its exports, and the steps as they were."""
    folder = tmp_path_factory.mktemp("exported")
    steps = export_all(folder)
    shutil.copy(HERE / "programs" / "qwen3.jinja", folder / "qwen3.jinja")
    program = HERE / "programs" / "with_verl.py"
    done = subprocess.run([python("verl"), program, folder], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    yield json.loads((folder / "said-verl.json").read_text()), steps
    shutil.rmtree(folder)


def trained(row):
    return [token for token, bit in zip(row["input_ids"], row["loss_mask"], strict=True) if bit]


def test_supervised_rows_train_on_the_replies_as_they_were_sampled(run):
    said, steps = run
    strict = {tuple(row["steps"]): row for row in said["strict"]}
    assert set(strict) == {("good-0", "good-1"), ("poor-0", "poor-1"), ("talk-0", "talk-1")}
    for name in ("good", "poor"):
        ids = (f"{name}-0", f"{name}-1")
        sampled = [token for step in ids for token in [*steps[step].response_ids, *NEWLINE]]
        assert trained(strict[ids]) == sampled
        last = steps[ids[1]]
        assert strict[ids]["input_ids"] == last.prompt_ids + last.response_ids + NEWLINE


def test_reasoning_of_earlier_turns_is_what_verl_refuses_or_trains_on(run):
    """It renders each message alone and compares with the whole, where Qwen3's template leaves reasoning out."""
    said, steps = run
    strict = {tuple(row["steps"]): row for row in said["strict"]}
    assert "ignore_input_ids_mismatch" in strict["talk-0", "talk-1"]["error"]
    lenient = {tuple(row["steps"]): row for row in said["lenient"]}
    sampled = [token for step in ("talk-0", "talk-1") for token in [*steps[step].response_ids, *NEWLINE]]
    assert trained(lenient["talk-0", "talk-1"]) == sampled


def test_prompts_come_with_their_references(run):
    rows = {row["data_source"]: row for row in run[0]["rl"]}
    towns = rows["towns"]
    assert [message["role"] for message in towns["raw_prompt"]] == ["system", "user"]
    assert towns["reward_model"] == {"style": "rule", "ground_truth": "rain"}
    assert towns["extra_info"]["task_id"] == "ulm"
    assert {row["index"] for row in run[0]["rl"]} == set(range(len(rows)))
