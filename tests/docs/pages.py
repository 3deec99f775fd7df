"""The documents as data: sections, tables, code blocks, links."""

import re
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
SOURCE = ROOT / "src" / "agentworld"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^ *```", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
_CODE = re.compile(r"`([^`]+)`")


class Block(NamedTuple):
    """One fenced block of a page."""

    page: Path
    language: str
    text: str

    def __str__(self) -> str:
        return f"{name(self.page)}: {self.text.strip().splitlines()[0][:40]}"


def name(page: Path) -> str:
    """A page's path from the root."""
    return page.relative_to(ROOT).as_posix()


def blocks(language: str) -> list[Block]:
    """The fenced blocks in that language, of all pages."""
    return [
        Block(page, found["language"], textwrap.dedent(found["text"]))
        for page in PAGES
        for found in _FENCE.finditer(page.read_text())
        if found["language"] == language
    ]


def without_fences(text: str) -> str:
    """A page's text without its fenced blocks."""
    return _FENCE.sub("", text)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub names them."""
    headings = [found[2] for found in _HEADING.finditer(without_fences(page.read_text()))]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def section(page: Path, heading: str) -> str:
    """What stands between a heading and the next of any level."""
    text = without_fences(page.read_text())
    found = re.search(rf"^#+ {re.escape(heading)}$(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"{name(page)} has no section {heading!r}"
    return found[1]


def tables(text: str) -> list[list[list[str]]]:
    """The tables of a text: rows of cells, without the head."""
    found: list[list[list[str]]] = []
    rows: list[list[str]] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
        elif rows:
            found.append(rows[2:])
            rows = []
    return found


def codes(text: str) -> list[str]:
    """What stands in backticks."""
    return _CODE.findall(text)


def table_of(text: str, number: int = 0) -> dict[str, list[str]]:
    """A table's rows by the code in their first cell; a cell with several gives several."""
    return {code: row for row in tables(text)[number] for code in codes(row[0])}
