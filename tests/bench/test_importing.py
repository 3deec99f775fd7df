"""Imports are measured beside a flat table of the same lines, and nothing is left behind."""

import json

from agentworld.bench.importing import SECTIONS, ImportBench, write
from agentworld.cli import invoke
from agentworld.ingest.reading import read_path


def test_the_command_says_what_it_measured(tmp_path, capsys):
    code = invoke(["bench", "import", "--size", "1", "--section", "atif", "--folder", str(tmp_path), "--json"])
    said = json.loads(capsys.readouterr().out)
    assert (said["size"], list(said["sections"])) == (1, ["atif"])
    rate, again, memory = said["sections"]["atif"]
    assert rate["met"] == (rate["value"] >= rate["required"] == 20)
    assert all(figure["value"] > 0 and figure["beside"] > 0 for figure in (rate, again))
    assert memory["met"] == (memory["value"] <= memory["required"])
    assert code == (0 if rate["met"] and memory["met"] else 1)
    assert list(tmp_path.iterdir()) == []


def test_what_is_made_is_of_its_format_and_the_same_each_time(tmp_path):
    for section in SECTIONS:
        first, second = tmp_path / section.name, tmp_path / f"{section.name} again"
        count = write(first, section, ImportBench(folder=tmp_path, size=1))
        assert write(second, section, ImportBench(folder=tmp_path, size=1)) == count
        files = sorted(path.name for path in first.iterdir())
        assert all((first / name).read_bytes() == (second / name).read_bytes() for name in files)
        assert len(files) == (count if section.apart else 1)
        runs, notes = read_path("auto", first)
        assert len(runs) == count
        assert [note for note in notes if note.lost] == []
        assert {len(run.steps) for run in runs} == {20}
        assert runs == read_path(section.name, first)[0]


def test_a_section_that_is_not_there_is_named(capsys):
    assert invoke(["bench", "import", "--section", "fast"]) == 2
    assert "There are openai-fine-tuning, atif, claude-code" in capsys.readouterr().err
