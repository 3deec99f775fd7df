"""`agentworld bench merge`: sections, tables, JSON, and the exit code."""

import json

from agentworld.bench import merging
from agentworld.bench.figure import Figure
from agentworld.cli import invoke


def test_one_that_falls_short_ends_with_1_and_is_marked(monkeypatch, capsys):
    asked = []

    def train(bench):
        asked.append((bench.tokens, bench.scale, bench.repeats))
        return [Figure("speed-up", 2.0, "times", beside=4.0, required=3.2), Figure("C", 5.0, "times")]

    monkeypatch.setattr(merging, "SECTIONS", [merging.Section("train", "what trains", train)])
    words = ["bench", "merge", "--section", "train", "--scale", "0.5", "--repeats", "2", "--tokens", "20000"]
    assert invoke(words) == 1
    assert "MISSED" in capsys.readouterr().out
    assert invoke([*words, "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert [figure["met"] for figure in said["sections"]["train"]] == [False, None]
    assert asked == [(20_000, 0.5, 2)] * 2
    assert invoke(["bench", "merge", "--section", "nonsense"]) == 2
