"""docs/import has a page for each format, and its examples give what they show."""

import shlex

import pytest

from agentworld.cli import invoke
from agentworld.ingest.formats import formats
from tests.docs.pages import DOCS, ROOT, blocks

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
