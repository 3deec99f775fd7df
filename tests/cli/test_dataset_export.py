"""`agentworld dataset export` and `dataset layouts`."""

import json

import pytest

import agentworld
from agentworld.cli import invoke
from agentworld.curation.datasets.selecting import create_dataset
from agentworld.pool.sqlite import SqlitePool
from agentworld.records import Reward, Selection, Splits
from tests.api.serving import Serving
from tests.curation.exports.talks import put_weather


@pytest.fixture
def pool(tmp_path, monkeypatch):
    """A pool in this folder with a version `good` in two splits."""
    monkeypatch.chdir(tmp_path)
    for variable in ("AGENTWORLD_POOL", "AGENTWORLD_URL"):
        monkeypatch.delenv(variable, raising=False)
    store = SqlitePool(tmp_path / "agentworld.db")
    for number in range(6):
        put_weather(store, f"t{number}", f"town {number}", group_id="g", reward=number / 5)
    store.add_rewards([Reward(step_id="t0-0", value=1.0, name="own")])
    splits = Splits(fractions={"train": 0.5, "test": 0.5}, by="trajectory", near_duplicates=None)
    create_dataset(store, "good", Selection(splits=splits))
    store.close()
    return f"sqlite:///{tmp_path / 'agentworld.db'}"


def test_a_version_is_exported_and_said_what_was_left_out(pool, tmp_path, capsys):
    command = ["dataset", "export", "good", "--format", "sft", "--out", "out", "--license", "mit"]
    assert invoke(command) == 0
    said = capsys.readouterr().out
    assert "6 rows" in said
    assert "as sft in out" in said
    assert (tmp_path / "out" / "README.md").read_text().startswith('---\nlicense: "mit"\n')
    assert invoke(command) == 1
    assert "out is there already" in capsys.readouterr().err
    kto = ["dataset", "export", "good", "--format", "kto", "--out", "kto", "--reward", "reward.own"]
    assert invoke([*kto, "--threshold", "2", "--format-file", "jsonl"]) == 0
    said = capsys.readouterr().out
    assert "Left out: 11 without_value (nothing says how good it is" in said
    [file] = (tmp_path / "kto" / "data").iterdir()
    row = json.loads(file.read_text())
    assert (row["label"], row["value"]) == (False, 1.0)
    assert invoke(["dataset", "trace", "--file", str(file), "--row", "0"]) == 0
    assert "t0" in capsys.readouterr().out


def test_options_reach_the_layout_and_the_report_is_json(pool, capsys):
    command = ["dataset", "export", "good", "--format", "preference", "--out", "pairs", "--sources", "rewards"]
    assert invoke([*command, "--margin", "0.1", "--most", "1", "--split", "train", "--json"]) == 1
    assert "no_common_prompt" in capsys.readouterr().err  # Each asks for another town.
    assert (
        invoke(["dataset", "export", "good", "--format", "steps", "--out", "steps", "--split", "test", "--json"]) == 0
    )
    report = json.loads(capsys.readouterr().out)
    assert set(report["splits"]) == {"test"}
    assert report["rows"] == 2 * len(report["splits"]["test"]["files"]) * 3
    assert invoke(["dataset", "export", "good", "--format", "steps", "--out", "x", "--thinking", "drop"]) == 1
    assert "no option thinking" in capsys.readouterr().err


def test_layouts_are_listed(capsys):
    assert invoke(["dataset", "layouts"]) == 0
    assert "sft-tokens" in capsys.readouterr().out
    assert invoke(["dataset", "layouts", "--json"]) == 0
    found = {each["name"]: each for each in map(json.loads, capsys.readouterr().out.splitlines())}
    assert found["sft"]["styles"] == ["messages", "prompt-completion", "verl"]


def test_in_python_too(pool, tmp_path):
    with agentworld.open_pool(pool) as opened:
        report = agentworld.export_dataset(opened, "good", "sft", tmp_path / "out", thinking="drop")
    assert report.rows == 6


def test_a_version_of_a_server_is_exported_here(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with Serving() as server:
        put_weather(server.pool)
        create_dataset(server.pool, "good", Selection(splits=Splits(near_duplicates=None)))
        command = ["dataset", "export", "good", "--format", "kto", "--out", "out", "--url", server.url, "--json"]
        assert invoke(command) == 0
        assert json.loads(capsys.readouterr().out)["rows"] == 2
        assert (tmp_path / "out" / "README.md").exists()
        assert invoke(command) == 1
        assert "is there already" in capsys.readouterr().err
