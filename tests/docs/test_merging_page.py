"""docs/merging.md is true: each command prints what the page says, and the tests that it names are there."""

import pytest

from tests.docs.pages import DOCS, ROOT, codes, section, tables
from tests.docs.walks import alike, parts, run

PAGE = DOCS / "merging.md"


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for variable in ("AGENTWORLD_POOL", "AGENTWORLD_URL"):
        monkeypatch.delenv(variable, raising=False)


def test_every_command_prints_what_the_page_says(workplace):
    walk = parts(PAGE)
    assert len(walk) > 7
    for part in walk:
        assert alike(run(part)) == alike(part.prints), part.what


def test_the_tests_that_it_names_are_there():
    known = "".join(path.read_text() for path in (ROOT / "tests" / "merge").glob("test_*.py"))
    rows = tables(section(PAGE, "What holds, and the tests that say so"))[0]
    names = [name for row in rows for name in codes(row[1])]
    assert len(names) >= len(rows) > 5
    assert [name for name in names if f"def {name}(" not in known] == []
