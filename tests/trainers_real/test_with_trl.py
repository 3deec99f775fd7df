"""TRL trains on the exports, and its losses are on exactly what was sampled or chosen."""

import json
import os
import re
import shlex
import shutil
import subprocess

import pytest

from agentworld.cli import invoke
from agentworld.pool.sqlite import SqlitePool
from tests.docs.pages import ROOT
from tests.trainers_real.exported import LAYOUTS, PIXEL, TOKENIZER, export_all, fill, written
from tests.trainers_real.installed import HERE, is_installed, python

pytestmark = [
    pytest.mark.trainers,
    pytest.mark.skipif(not is_installed("trl"), reason="not installed: python -m tests.trainers_real.installed trl"),
]
NEWLINE = TOKENIZER.encode("\n")
"""What Qwen3's template writes after each turn, and TRL's form of it trains on; models never sample it."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """What TRL said of each export, and the steps as they were."""
    folder = tmp_path_factory.mktemp("exported")
    steps = export_all(folder)
    program = HERE / "programs" / "with_trl.py"
    done = subprocess.run([python("trl"), program, folder], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    yield json.loads((folder / "said.json").read_text()), steps, folder
    shutil.rmtree(folder)


@pytest.fixture
def said(run):
    return run[0]


@pytest.fixture
def steps(run):
    return run[1]


def trained(row):
    """The ids that give loss."""
    assert all(label in (-100, token) for token, label in zip(row["input_ids"], row["labels"], strict=True))
    return [label for label in row["labels"] if label != -100]


def by_steps(rows):
    return {tuple(row["steps"]): row for row in rows}


def test_every_layout_loads_with_datasets(said):
    assert set(said["loaded"]) == set(LAYOUTS)
    for name, found in said["loaded"].items():
        assert found["rows"] > 0, name
        assert found["columns"][-1] == "agentworld" or "images" in found["columns"], name
    row = said["loaded"]["sft"]["row"]
    assert row == said["loaded"]["sft-jsonl"]["row"]
    assert row["messages"][2]["tool_calls"][0]["function"]["arguments"] == {"town": "Ulm", "days": 1}
    assert "tool_calls" not in row["messages"][0]  # Absent, not null.
    assert said["loaded"]["sft-images"]["images"] == [[1, 1]]
    assert len(PIXEL) > 50
    prm = said["loaded"]["prm"]["row"]
    assert (len(prm["completions"]), prm["labels"]) == (2, [True, False])
    assert [len(turn) for turn in said["loaded"]["prm-messages"]["row"]["completions"]] == [1, 2]
    step = said["loaded"]["steps"]["row"]
    assert step["policy"]["model"] == "pocket"


@pytest.mark.parametrize("name", ["sft", "sft-jsonl", "sft-completion"])
def test_conversations_train_on_the_replies_as_they_were_sampled(said, steps, name):
    rows = by_steps(said[name]["rows"])
    assert set(rows) == {("good-0", "good-1"), ("poor-0", "poor-1"), ("talk-0", "talk-1")}
    for ids, row in rows.items():
        assert trained(row) == [token for step in ids for token in [*steps[step].response_ids, *NEWLINE]]
    for name in ("good", "poor"):
        whole = rows[f"{name}-0", f"{name}-1"]["input_ids"]
        assert whole == steps[f"{name}-1"].prompt_ids + steps[f"{name}-1"].response_ids + NEWLINE
    assert said["sft"]["loss"] > 0


def test_one_row_a_step_has_the_context_of_inference(said, steps):
    """The first turn's reasoning is not in the second turn's prompt, as the model saw it."""
    rows = by_steps(said["sft-each"]["rows"])
    assert len(rows) == 6
    for (step,), row in rows.items():
        assert trained(row) == steps[step].response_ids + NEWLINE
    for (step,), row in by_steps(said["sft-each-whole"]["rows"]).items():
        assert row["input_ids"] == steps[step].prompt_ids + steps[step].response_ids + NEWLINE
        assert trained(row) == steps[step].response_ids + NEWLINE


def test_token_rows_train_on_the_sampled_ids_and_nothing_else(said, steps):
    rows = by_steps(said["sft-tokens"]["rows"])
    assert set(rows) == {("good-0", "good-1"), ("poor-0", "poor-1"), ("talk-0",), ("talk-1",)}
    for ids, row in rows.items():
        assert trained(row) == [token for step in ids for token in steps[step].response_ids]
        assert row["input_ids"] == steps[ids[-1]].prompt_ids + steps[ids[-1]].response_ids
    answers = {ids: TOKENIZER.decode(trained(row)) for ids, row in by_steps(said["sft-answers"]["rows"]).items()}
    assert answers == {
        ("good-0", "good-1"): "Rain in Ulm.<|im_end|>",
        ("poor-0", "poor-1"): "Rain in Bonn.<|im_end|>",
        ("talk-0",): "Hello.<|im_end|>",
        ("talk-1",): "Bye.<|im_end|>",
    }
    assert said["sft-tokens"]["loss"] > 0


def test_preferences_are_the_two_replies_to_the_prompt_that_was_asked(said, steps):
    rows = by_steps(said["dpo"]["rows"])
    assert set(rows) == {("talk-1",), ("good-0", "poor-0")}
    pair = rows["good-0", "poor-0"]
    assert pair["prompt_ids"] == steps["good-0"].prompt_ids
    assert pair["chosen_ids"] == steps["good-0"].response_ids + NEWLINE
    assert pair["rejected_ids"] == steps["poor-0"].response_ids + NEWLINE
    corrected = rows["talk-1",]
    assert corrected["prompt_ids"] == steps["talk-1"].prompt_ids
    assert corrected["rejected_ids"] == steps["talk-1"].response_ids + NEWLINE
    assert TOKENIZER.decode(corrected["chosen_ids"]) == "<think>\n\n</think>\n\nSee you.<|im_end|>\n"
    assert said["dpo"]["loss"] > 0


def test_reward_models_get_the_margin(said, steps):
    pair = by_steps(said["reward"]["rows"])["good-0", "poor-0"]
    assert pair["chosen_ids"] == steps["good-0"].prompt_ids + steps["good-0"].response_ids + NEWLINE
    assert pair["margin"] == 1.0
    assert said["reward"]["loss"] > 0


def test_good_and_bad_replies(said, steps):
    rows = by_steps(said["kto"]["rows"])
    labels = {step: row["label"] for (step,), row in rows.items()}
    assert labels == {step: not step.startswith("poor") for step in steps if not step.startswith("seen")}
    for (step,), row in rows.items():
        assert row["prompt_ids"] == steps[step].prompt_ids
        assert row["completion_ids"] == steps[step].response_ids + NEWLINE
    assert said["kto"]["loss"] > 0


def test_reward_functions_of_grpo_get_reference_and_origin(said):
    seen = said["grpo"]["seen"]
    assert seen["truth"] == "rain" or seen["truth"] == ""
    assert set(seen["from"]) == {"version", "trajectory_id", "step_ids"}


def test_the_replies_were_written_as_the_format_says(steps):
    for step in steps.values():
        if step.response_ids is not None:
            assert step.response_ids == written(step.response_message)


def test_the_five_lines_of_the_page_train(run, tmp_path, monkeypatch):
    """The commands and the lines of docs/trl.md as they stand there, with a small model on this machine."""
    page = (ROOT / "docs" / "trl.md").read_text()
    commands = re.findall(r"^\$ agentworld (.+)$", page, re.MULTILINE)
    lines = re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]
    assert len(commands) + len([line for line in lines.splitlines() if line]) == 5
    monkeypatch.chdir(tmp_path)
    for variable in ("AGENTWORLD_POOL", "AGENTWORLD_URL"):
        monkeypatch.delenv(variable, raising=False)
    pool = SqlitePool(tmp_path / "agentworld.db")
    fill(pool)
    pool.close()
    for command in commands:
        assert invoke(shlex.split(command)) == 0
    lines = lines.replace("Qwen/Qwen3-0.6B", str(run[2] / "model"))
    lines = lines.replace("assistant_only_loss=True", "assistant_only_loss=True, max_steps=1, use_cpu=True, bf16=False")
    done = subprocess.run(
        [python("trl"), "-c", lines],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "cache"), "WANDB_DISABLED": "true"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "train_loss" in done.stdout
