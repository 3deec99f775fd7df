"""docs/curation.md is true: each command of the walk is run in its order, and prints what the page says."""

import contextlib
import io
import re
import shlex
import subprocess
import sys
from typing import NamedTuple

import pytest

from agentworld.cli import invoke
from tests.docs.pages import DOCS, ROOT

PAGE = DOCS / "curation.md"
_FENCE = re.compile(r"^```(console|python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What is another one at each run: ids, times, durations, widths of tables.
_OTHER = [
    (r"stp_\w+", "STEP"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "WHEN"),
    (r"^(numeric .*\s)\S+$", r"\1SECONDS"),
    (r"[ ─]+", " "),
]


class Part(NamedTuple):
    """A command, or a piece of Python, with what it prints."""

    what: str
    prints: str


def parts():
    found = []
    for language, text in _FENCE.findall(PAGE.read_text()):
        if language == "console":
            for piece in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                command, _, printed = piece.partition("\n")
                found.append(Part(command, printed))
        elif language == "python":
            found.append(Part(text, ""))
        else:
            found[-1] = found[-1]._replace(prints=text)
    return found


def alike(text):
    lines = []
    for line in text.strip().splitlines():
        for pattern, instead in _OTHER:
            line = re.sub(pattern, instead, line)
        if "STEP" in line:
            line = re.sub(r"(?<!\S)[0-9a-z]{6}(?!\S)", "END-OF-ID", line)  # How a table names its parent.
        lines.append(line.strip())
    return "\n".join(lines)


def run(part):
    """What it prints on standard output."""
    words = shlex.split(part.what) if "\n" not in part.what else [sys.executable, "-c", part.what]
    if words[0] == "agentworld":
        error = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(error):
            code = invoke(words[1:])
        assert code == 0, f"{part.what}: {error.getvalue()}"
        return printed.getvalue()
    command = [sys.executable if words[0] == "python" else words[0], *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """An empty folder from which the examples are found as from the repository's."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    for variable in ("AGENTWORLD_POOL", "AGENTWORLD_URL"):
        monkeypatch.delenv(variable, raising=False)


def test_every_command_prints_what_the_page_says(workplace):
    walk = parts()
    assert len(walk) > 15
    for part in walk:
        assert alike(run(part)) == alike(part.prints), part.what


def test_what_differs_from_run_to_run_does_not_count_and_all_else_does():
    assert alike("a  stp_x1  2026-01-02 03:04:05\n") == alike("a stp_y2 2027-01-02 03:04:06  ")
    assert alike("check.loop  1") != alike("check.loop  2")
    assert alike("sum-1 ready") != alike("sum-1 excluded")
