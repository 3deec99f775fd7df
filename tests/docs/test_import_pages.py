"""docs/import has a page for each format, and its examples give what they show."""

import shlex

import pytest

from agentworld.cli import invoke
from agentworld.ingest.formats import formats
from tests.docs.pages import DOCS, ROOT, blocks, section, tables

FOLDER = DOCS / "import"
EXAMPLES = [block for block in blocks("console") if block.page.parent == FOLDER]


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_examples_give_what_they_show(example, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    command, _, shown = example.text.partition("\n")
    program, *arguments = shlex.split(command.removeprefix("$ "))
    assert program == "agentworld"
    assert "--dry-run" in arguments
    invoke(arguments)
    assert capsys.readouterr().out.rstrip().splitlines() == [line.rstrip() for line in shown.rstrip().splitlines()]


@pytest.mark.parametrize(
    "name", ["atif", "claude-code", "codex", "langfuse", "langsmith", "openai-fine-tuning", "openhands", "otlp"]
)
def test_pages_have_an_example(name):
    assert name in formats()
    assert f"import/{name}.md" in {f"import/{example.page.name}" for example in EXAMPLES}


def test_the_index_lists_every_format_with_its_page():
    (rows,) = tables(section(FOLDER / "README.md", "Formats"))
    assert [row[0] for row in rows] == [f"[{name}]({name}.md)" for name in formats()]
    for name in formats():
        assert f"import {name} " in (FOLDER / f"{name}.md").read_text()


def test_a_format_of_your_own(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quiz.jsonl").write_text('{"question": "2 + 2", "answer": "4", "points": 1}\n{\n')
    (code,) = (block.text for block in blocks("python") if block.page == FOLDER / "README.md" and "Quiz" in block.text)
    try:
        exec(compile(code, "README.md", "exec"), {"__name__": "page"})
    finally:
        del formats()["quiz"]
    assert capsys.readouterr().out == "1\n"


def test_the_walk_through_in_python(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    row = '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n'
    (tmp_path / "rollouts.jsonl").write_text(row)
    code = next(block.text for block in blocks("python") if block.page == FOLDER / "README.md")
    exec(compile(code, "README.md", "exec"), {"__name__": "page"})
    assert "'openai-fine-tuning': FormatCounts(files=1, runs=1, added=1" in capsys.readouterr().out
