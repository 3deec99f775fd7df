"""docs/curation.md is true: each command of the walk is run in its order, and prints what the page says."""

import pytest

from tests.docs.pages import DOCS, ROOT
from tests.docs.walks import alike, parts, run

PAGE = DOCS / "curation.md"


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """An empty folder from which the examples are found as from the repository's."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    for variable in ("AGENTWORLD_POOL", "AGENTWORLD_URL"):
        monkeypatch.delenv(variable, raising=False)


def test_every_command_prints_what_the_page_says(workplace):
    walk = parts(PAGE)
    assert len(walk) > 15
    for part in walk:
        assert alike(run(part)) == alike(part.prints), part.what
    (lease,) = (part for part in walk if "lease(" in part.what)
    assert run(lease) == ""  # A second run finds nothing left, and says so without an error.


def test_what_differs_from_run_to_run_does_not_count_and_all_else_does():
    assert alike("a  stp_x1  2026-01-02 03:04:05\n") == alike("a stp_y2 2027-01-02 03:04:06  ")
    assert alike("check.loop  1") != alike("check.loop  2")
    assert alike("sum-1 ready") != alike("sum-1 excluded")
