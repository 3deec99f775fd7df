"""Pages that walk through commands and pieces of Python, with what each prints."""

import contextlib
import io
import re
import shlex
import subprocess
import sys
from typing import NamedTuple

from agentworld.cli import invoke

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


def parts(page):
    """The pieces of a page in their order."""
    found = []
    for language, text in _FENCE.findall(page.read_text()):
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
    """The text without what is another one at each run."""
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
    if "\n" in part.what:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(part.what, {"__name__": "__main__"})
        return printed.getvalue()
    words = shlex.split(part.what)
    if words[0] == "agentworld":
        error = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(error):
            code = invoke(words[1:])
        assert code == 0, f"{part.what}: {error.getvalue()}"
        return printed.getvalue()
    command = [sys.executable if words[0] == "python" else words[0], *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
