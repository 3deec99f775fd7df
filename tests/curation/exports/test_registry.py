"""Layouts of others."""

import json

import pytest

from agentworld.curation.exports import export_dataset, known_layouts, layout, origin_of, registry
from agentworld.errors import ConfigError
from tests.curation.exports.talks import frozen, put_weather


@pytest.fixture
def lengths(monkeypatch):
    """A layout as someone else would write it."""
    monkeypatch.setattr(registry, "_registered", dict(known_layouts()))

    @layout("lengths", says="How long replies are.", columns=lambda options: {"length": "whole"})
    class Lengths:
        def __init__(self, work):
            self.left_out = work.left_out

        def rows(self, frozen):
            for step in frozen.steps:
                if not step.response_message.text:
                    self.left_out["silent"] += 1
                    continue
                yield {"length": len(step.response_message.text), "agentworld": origin_of([step])}

        def rest(self):
            return iter(())

    return Lengths


def test_a_layout_of_ones_own_exports_like_the_others(lengths, memory, tmp_path):
    put_weather(memory)
    report = export_dataset(memory, frozen(memory).name, "lengths", tmp_path / "out", file_format="jsonl")
    row = json.loads((tmp_path / "out" / report.splits["train"].files[0]).read_text())
    assert row["length"] == len("It rains in Ulm.")
    assert row["agentworld"]["step_ids"] == ["t1-1"]
    assert report.left_out == {"silent": 1}
    with pytest.raises(ConfigError, match="no option thinking"):
        export_dataset(memory, "good", "lengths", tmp_path / "other", thinking="drop")


def test_names_are_taken_once(lengths):
    with pytest.raises(ConfigError, match="two layouts"):
        layout("lengths", says="", columns=lambda options: {})(type("Other", (), {}))
    with pytest.raises(ConfigError, match="cannot be the name"):
        layout("Not a name", says="", columns=lambda options: {})
