"""The page on methods has the table that leases go by, and the budget of the check."""

from agentworld.pool import spec_check
from agentworld.records import METHODS, BatchSpec
from agentworld.records.method_table import rows, table
from tests.docs.pages import DOCS, section, table_of

PAGE = DOCS / "methods.md"


def test_the_table_is_that_of_the_code() -> None:
    text = section(PAGE, "What each method needs")
    assert table() in text, "paste the output of python -m agentworld.records.method_table"
    assert set(table_of(text)) == set(METHODS)
    for row, method in zip(rows(), METHODS.values(), strict=True):
        resolved = BatchSpec(method=method.name).resolved()
        assert row[1].startswith(resolved.unit or "")
        assert method.source.startswith(("arXiv:", "doi:", "maximum likelihood"))


def test_the_budget_is_that_of_the_code() -> None:
    text = " ".join(section(PAGE, "Before a lease").split())
    for said in (f"newest {spec_check.LOOKED_UNITS} units", f"{spec_check.LOOKED_STEPS:,} steps",
                 f"{spec_check.LOOKED_SECONDS:g} s"):  # fmt: skip
        assert said in text
