"""The page on checks is what the checks say of themselves, and its example runs."""

import re
from pathlib import Path

import msgspec
import pytest

from agentworld.curation.checks import CheckSettings, known, registry, run_checks
from agentworld.curation.checks.reference import page
from tests.curation.checks.building import run, says, user

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "checks.md"


def test_the_page_is_up_to_date():
    text = PAGE.read_text()
    assert text == page(), "python -m agentworld.curation.checks.reference > docs/reference/checks.md"
    assert set(re.findall(r"^### (.+)$", text, re.MULTILINE)) == set(registry.built_in())


@pytest.mark.parametrize("name", sorted(registry.built_in()))
def test_each_check_tells_what_it_says_and_how_it_fails(name):
    each = known()[name]
    for said in (each.says, each.fails):
        assert said.endswith(".")
        assert len(said) > 40
    assert each.values
    assert each.version


@pytest.mark.parametrize("field", [field.name for field in msgspec.structs.fields(CheckSettings)])
def test_each_setting_is_told(field):
    assert f"`{field}`" in (CheckSettings.__doc__ or "")


@pytest.fixture
def registered(monkeypatch):
    known()
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))


@pytest.mark.usefixtures("registered")
def test_the_example_of_the_page_runs():
    code = "\n".join(line[4:] for line in PAGE.read_text().splitlines() if line.startswith("    ") or not line)
    exec(code, {"__name__": "example"})
    record = run(user("x"), says("NO"), user("x"), says("yes"))
    found = [(each.step_id, each.value) for each in run_checks(record) if each.check == "shouting"]
    assert found == [("t1-0", True), (None, True)]
