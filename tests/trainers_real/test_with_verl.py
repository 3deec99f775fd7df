"""verl's own data sets load the exports, and its losses are on what was sampled."""

import json
import shutil
import subprocess

import pytest

from tests.trainers_real.exported import TOKENIZER, export_all
from tests.trainers_real.installed import HERE, is_installed, python
from tests.trainers_real.installed import folder as installed_in

pytestmark = [
    pytest.mark.trainers,
    pytest.mark.skipif(
        not (is_installed("verl") and is_installed("trl")),
        reason="not installed: python -m tests.trainers_real.installed trl verl",
    ),
]
NEWLINE = TOKENIZER.encode("\n")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """What verl said of its exports, and the steps as they were."""
    folder = tmp_path_factory.mktemp("exported")
    steps = export_all(folder)
    [templates] = installed_in("trl").glob("lib/python*/site-packages/trl/chat_templates")
    for name in ("qwen3.jinja", "qwen3_training.jinja"):
        shutil.copy(templates / name, folder / name)
    program = HERE / "programs" / "with_verl.py"
    done = subprocess.run([python("verl"), program, folder], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    yield json.loads((folder / "said-verl.json").read_text()), steps
    shutil.rmtree(folder)


def trained(row):
    return [token for token, bit in zip(row["input_ids"], row["loss_mask"], strict=True) if bit]


def by_steps(rows):
    return {tuple(row["steps"]): row for row in rows}


def test_supervised_rows_train_on_the_replies_as_they_were_sampled(run):
    """With a template that writes the reasoning of every reply."""
    said, steps = run
    rows = by_steps(said["always"])
    assert set(rows) == {("good-0", "good-1"), ("poor-0", "poor-1"), ("talk-0", "talk-1")}
    for ids, row in rows.items():
        assert trained(row) == [token for step in ids for token in [*steps[step].response_ids, *NEWLINE]]
    for name in ("good", "poor"):
        last = steps[f"{name}-1"]
        assert rows[f"{name}-0", f"{name}-1"]["input_ids"] == last.prompt_ids + last.response_ids + NEWLINE


def test_it_refuses_templates_that_write_one_message_otherwise_than_the_whole(run):
    """It renders each message alone: Qwen3's own template, which looks for a question before, leaves reasoning out."""
    said, steps = run
    assert all("ignore_input_ids_mismatch" in row["error"] for row in said["own"])
    lenient = TOKENIZER.decode(trained(by_steps(said["own-lenient"])["talk-0", "talk-1"]))
    assert lenient == "Hello.<|im_end|>\nBye.<|im_end|>\n"
    assert "A greeting." in TOKENIZER.decode(steps["talk-0"].response_ids)


def test_prompts_come_with_their_references(run):
    rows = {row["data_source"]: row for row in run[0]["rl"]}
    towns = rows["towns"]
    assert [message["role"] for message in towns["raw_prompt"]] == ["system", "user"]
    assert towns["reward_model"] == {"style": "rule", "ground_truth": "rain"}
    assert towns["extra_info"]["task_id"] == "ulm"
    assert {row["index"] for row in run[0]["rl"]} == set(range(len(rows)))
