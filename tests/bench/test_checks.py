"""Checks are measured beside what is done without them, and nothing is left behind."""

import json

import pytest

from agentworld.bench import checks
from agentworld.bench.figure import Figure
from agentworld.cli import invoke


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(checks, "TURNS", 3)


@pytest.mark.usefixtures("small")
def test_the_command_says_what_it_measured(tmp_path, capsys):
    code = invoke(["bench", "checks", "--trajectories", "16", "--texts", "300", "--folder", str(tmp_path), "--json"])
    said = json.loads(capsys.readouterr().out)
    assert (said["trajectories"], said["texts"], list(said["sections"])) == (16, 300, ["pass", "run", "near"])
    rate, alone, new = said["sections"]["pass"]
    assert rate["required"] == 2_000
    assert rate["met"] == (rate["value"] >= 2_000)
    whole, only_new, few, nothing, memory = said["sections"]["run"]
    assert whole["met"] == (whole["value"] >= whole["required"] == 2_000)
    assert whole["beside"] > whole["value"] > 0
    assert only_new["value"] > 0
    assert few["value"] > nothing["value"] > 0
    assert memory["value"] > 1
    assert code == (0 if rate["met"] and whole["met"] else 1)
    assert 0 < rate["value"] < alone["value"]
    assert new["value"] > 0
    assert list(tmp_path.iterdir()) == []


def test_copies_are_found_and_others_are_not():
    took, digests, memory, missed, wrong = checks.search(400, 7)
    assert took > digests > 0
    assert memory > 2**20
    assert (missed, wrong) == (0, 0)


def test_bounds_are_of_the_whole_number_of_texts():
    assert [section.name for section in checks.SECTIONS] == ["pass", "run", "near"]
    assert Figure("a", 3.0, "s", required=2.0, better="less").met is False
    assert Figure("a", 3.0, "s", required=2.0).met is True
    assert Figure("a", 3.0, "s").met is None


def test_a_section_that_is_not_there_is_named(capsys):
    assert invoke(["bench", "checks", "--section", "fast"]) == 2
    assert "There are pass, run, near" in capsys.readouterr().err
