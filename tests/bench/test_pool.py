"""The measurements run, say what they measured, and leave nothing behind; sizes are what is required."""

import json

import psycopg
import pytest

from agentworld.bench import reading, sizes, writing
from agentworld.bench.figure import Figure
from agentworld.bench.pool import SECTIONS, measure
from agentworld.bench.record import Bench
from agentworld.cli import invoke


@pytest.fixture
def small(monkeypatch):
    """Measurements of few steps."""
    monkeypatch.setattr(writing, "_TURNS", 2)
    monkeypatch.setattr(writing, "_FLAT_STEPS", 32)
    monkeypatch.setattr(writing, "_THREADS", 4)
    monkeypatch.setattr(sizes, "_TURNS", 3)
    monkeypatch.setattr(sizes, "_FEW", 1)
    monkeypatch.setattr(sizes, "_MANY", 3)
    monkeypatch.setattr(reading, "SMALL", 1_000)
    monkeypatch.setattr(reading, "_READ_TURNS", 4)
    monkeypatch.setattr(reading, "_PAGES", 15)
    monkeypatch.setattr(reading, "_OVERVIEWS", 3)


def test_a_pool_is_as_small_as_required(tmp_path):
    [whole, smaller, bound] = sizes.size(Bench(steps=0, url=None, folder=tmp_path))
    assert whole.beside / whole.value == smaller.value
    assert (smaller.required, bound.required) == (10.0, 1.25)
    assert smaller.met, smaller
    assert bound.met, bound
    assert list(tmp_path.iterdir()) == []


def test_content_counts_what_is_unique():
    from agentworld.testing.workload import tool_trajectories

    one, two = (sizes.content(tool_trajectories(1, rollouts, 2, 100)) for rollouts in (1, 2))
    opening, turn, sampled = 4 * 1_500, 4 * 100, 4 * 50
    # The last turn's prompt ends before its tool's result, so one turn is whole and one half.
    assert one.unique == opening + turn + sampled + 2 * sampled
    assert two.unique == one.unique + turn + sampled + 2 * sampled
    assert one.text < two.text < one.flat


def test_the_command_prints_the_sections_that_are_named(small, tmp_path, capsys):
    invoke(["bench", "pool", "--steps", "200", "--folder", str(tmp_path), "--json", "--section", "size"])
    said = json.loads(capsys.readouterr().out)
    assert (said["engine"], said["steps"], list(said["sections"])) == ("sqlite", 200, ["size"])
    for figures in said["sections"].values():
        assert all(figure["value"] > 0 for figure in figures)
        assert any(figure["beside"] for figure in figures)
    assert list(tmp_path.iterdir()) == []


def test_tables_say_what_falls_short(monkeypatch, tmp_path, capsys):
    figures = [Figure(name="a", value=1.0, unit="x", beside=3.0, required=2.0), Figure(name="b", value=1.0, unit="x")]
    monkeypatch.setattr("agentworld.bench.pool.SECTIONS", [SECTIONS[0]._replace(measure=lambda bench: figures)])
    assert invoke(["bench", "pool", "--folder", str(tmp_path)]) == 1
    shown = capsys.readouterr().out
    assert SECTIONS[0].title in shown
    assert "MISSED" in shown
    figures[0] = Figure(name="a", value=1.0, unit="x", required=2.0, better="less")
    assert invoke(["bench", "pool", "--folder", str(tmp_path)]) == 0
    assert "met" in capsys.readouterr().out


def test_one_section_is_measured_where_one_is_named(small, tmp_path):
    [(section, figures)] = measure(Bench(steps=32, url=None, folder=tmp_path), ["write"])
    assert section.name == "write"
    assert all(figure.value > 0 and figure.beside > 0 for figure in figures)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"), [(["--section", "nowhere"], "no section"), (["--engine", "mysql://x"], "no engine")]
)
def test_what_cannot_be_measured_is_refused(arguments, said, capsys):
    assert invoke(["bench", "pool", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_postgresql_is_measured_in_schemas_that_go(small, tmp_path, postgres):
    url = postgres.create_database("bench")
    for _, figures in measure(Bench(steps=32, url=url, folder=tmp_path), ["write", "size"]):
        assert all(figure.value > 0 for figure in figures)
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'agentworld%'").fetchall()
    assert found == []
    postgres.drop_database("bench")
