"""The code of the page on credit runs as it stands there, and the page names every method with its parameters."""

import re

import msgspec
import pytest

from agentworld.credit import credit_by_name, credit_names
from agentworld.credit.methods import OnTrees, PerRole, SpreadParameters
from tests.docs.pages import DOCS, ROOT, blocks, codes, section, table_of

PAGE = DOCS / "credit.md"


def test_its_examples_run(capsys):
    names = {"__name__": "page"}
    try:
        for block in blocks("python"):
            if block.page == PAGE:
                exec(compile(block.text, str(block), "exec"), names)
        credit = names["credit"]
        # Of the episode +-0.5; the first steps, in one state, also by half of their returns' difference of 0.5.
        assert credit.credits.tolist() == pytest.approx([0.75, 0.5, -0.75, -0.5])
        assert credit.weights.sum() == pytest.approx(1.0)
        assert "0.75" in capsys.readouterr().out
        assert names["rule"].parameters.factor == 0.1
    finally:
        names["pool"].close()


def test_every_method_is_in_the_table_with_its_parameters():
    rows = table_of(section(PAGE, "Methods"))
    here = [name for name in credit_names() if credit_by_name(name).method.method.__module__.startswith("agentworld.")]
    assert sorted(rows) == here
    for name in here:
        kind = credit_by_name(name).method.parameters
        cells = " ".join(rows[name])
        words = set(codes(cells))
        if "those of spreading" in cells:
            words |= set(SpreadParameters.__struct_fields__)
        if "and of roles" in cells:
            words |= set(PerRole.__struct_fields__)
        assert set(kind.__struct_fields__) <= words, name
        for field in msgspec.structs.fields(kind):
            if f"`{field.name}` " in cells and isinstance(field.default, bool | float):
                assert re.search(rf"`{field.name}` ({str(field.default).lower()})\b", cells), (name, field.name)


def test_what_all_share_is_explained():
    text = section(PAGE, "Methods") + section(PAGE, "Forks")
    assert {*OnTrees.__struct_fields__, *PerRole.__struct_fields__} - {"gamma"} - set(codes(text)) == set()


def test_quoted_tests_exist():
    quoted = re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE.read_text())
    assert len(quoted) > 5
    for file, name in quoted:
        assert f"def {name}(" in (ROOT / "tests" / file).read_text(), name
