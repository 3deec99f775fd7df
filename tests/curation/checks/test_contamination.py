"""Runs of words that stand in an evaluation set are found, wherever they stand."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.curation.checks import (
    CheckContext,
    CheckSettings,
    EvaluationSets,
    contamination,
    read_evaluation_sets,
    run_checks,
)
from agentworld.curation.checks.words import windows, words_of
from agentworld.errors import ConfigError
from tests.curation.checks.building import calls, run, says, tool, user
from tests.examples import examples

QUESTION = "A train leaves the old harbour at seven in the morning and reaches the distant mountain village at noon."
OTHER = "Each of the nine gardeners plants four rows of tulips and waters them twice on every second day of June."


def _found(record, sets):
    found = run_checks(record, CheckContext(evaluation=sets, checks=frozenset(["contaminated"])))
    assert len(found) <= 1
    return found[0] if found else None


@pytest.fixture
def sets(tmp_path):
    (tmp_path / "trains.jsonl").write_text(
        "\n\n".join(
            map(json.dumps, [{"id": 1, "question": QUESTION, "answer": ["noon"]}, {"question": {"text": OTHER}}])
        )
    )
    (tmp_path / "notes.txt").write_text(f"too short\n\n{OTHER[::-1]}\n{OTHER[::-1]}\n")
    return read_evaluation_sets([tmp_path / "trains.jsonl", tmp_path / "notes.txt"])


def test_sets_are_read_from_lines_and_paragraphs(sets):
    assert len(sets) == 3
    assert sets.skipped == 1


@pytest.mark.parametrize(
    ("said", "step", "message"),
    [
        ([user(f"Solve: {QUESTION.upper()}"), says("noon")], "t1-0", 0),
        ([user("x"), says(QUESTION.replace(" ", "\n  "))], "t1-0", "reply"),
        ([user("x"), calls(("bash", {"command": QUESTION})), tool("ok"), says("y")], "t1-0", "reply"),
        ([user("x"), calls(("bash", {})), tool(f"<p>{QUESTION}</p>"), says("y")], "t1-1", 2),
    ],
)
def test_an_item_is_found_where_it_stands(sets, said, step, message):
    found = _found(run(*said), sets)
    assert found.value == 1.0
    evidence = found.evidence
    assert (evidence["step"], evidence["message"], evidence["set"], evidence["item"]) == (step, message, "trains", 1)
    assert evidence["excerpt"].lower().split() == QUESTION.lower().split()[:13]


def test_a_part_counts_by_its_runs(sets):
    words = OTHER.split()
    found = _found(run(user(" ".join(words[:14])), says("x")), sets)
    assert found.value == round(2 / (len(words) - 12), 3)
    assert (found.evidence["runs"], found.evidence["item"]) == (2, 2)
    assert _found(run(user(" ".join(words[:12])), says("x")), sets) is None


def test_no_run_crosses_from_one_message_to_the_next(sets):
    words = OTHER.split()
    assert _found(run(user(" ".join(words[:9])), says(" ".join(words[9:]))), sets) is None
    assert _found(run(user(" ".join(words[:9]) + "\0"), says("\0" + " ".join(words[9:]))), sets) is None


def test_the_wording_of_a_set_is_no_contamination():
    opening = "Read the following question with care and then answer it in one short sentence please"
    items = [
        f"{opening}: what is number {number} in the list of all things that were there at that time"
        for number in range(11)
    ]
    found = _found(run(user(opening), says("x")), EvaluationSets({"a": items}, 13))
    assert found is None
    assert _found(run(user(items[3]), says("x")), EvaluationSets({"a": items}, 13)).evidence["item"] == 4
    assert _found(run(user(opening), says("x")), EvaluationSets({"a": items[:10]}, 13)) is not None


def test_runs_may_be_shorter():
    sets = EvaluationSets({"a": ["what is seven times six"]}, CheckSettings(ngram=4).ngram)
    assert _found(run(user("Tell me: what is seven times nine?"), says("x")), sets).value == 0.5


def test_long_texts_are_read_in_pieces(sets):
    text = "x " * 450_000 + QUESTION + " y" * 100_000
    found = _found(run(user(text), says(text[::-1]), user(OTHER), says("z")), sets)
    assert found.value == 1.0
    assert found.evidence["items"] >= 1


def test_nothing_at_a_cut_is_missed(sets, monkeypatch):
    monkeypatch.setattr(contamination, "LONGEST", 400)  # parts of 200
    for before in range(0, 260, 7):
        found = _found(
            run(user("é" * (before % 3) + " x" * (before // 2) + f" {QUESTION}" + " y" * 200), says("z")), sets
        )
        assert found.value == 1.0, before
        assert found.evidence["excerpt"].split() == QUESTION.split()[:13]
    # And not what a cut would make of a longer word.
    assert _found(run(user("x " * 48 + f"y{QUESTION[:-5]}"), says("z")), sets).value < 1.0


@settings(max_examples=examples(100))
@given(st.text(alphabet="ab \u3042", max_size=60), st.integers(3, 20), st.integers(1, 4))
def test_each_run_that_fits_is_whole_in_a_part(text, size, count):
    parts = list(windows(text, size, count))
    assert all(0 <= begin <= end <= begin + size for begin, end in parts)
    assert (parts[0][0], parts[-1][1]) == (0, len(text))
    words = words_of(text)
    for first in range(len(words.starts) - count + 1):
        start, end = words.starts[first], words.ends[first + count - 1]
        if end - start < size:
            assert any(begin <= start and end <= stop for begin, stop in parts), (start, end, parts)


def test_without_sets_nothing_is_said(sets):
    assert _found(run(user(QUESTION), says("x")), None) is None
    assert _found(run(user(QUESTION), says("x")), EvaluationSets({}, 13)) is None


def test_files_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"a": "b"}\n{"a": \n')
    with pytest.raises(ConfigError, match=r"line 2 of .*bad.jsonl is no JSON"):
        read_evaluation_sets([tmp_path / "bad.jsonl"])
    with pytest.raises(ConfigError, match="cannot be read"):
        read_evaluation_sets([tmp_path / "none.jsonl"])
