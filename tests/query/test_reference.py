import subprocess
import sys
from pathlib import Path

from agentworld.pool import schema
from agentworld.query import FIELDS
from agentworld.query.reference import reference

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "where.md"


def test_the_page_is_what_is_generated():
    assert PAGE.read_text() == reference(), "run: python -m agentworld.query.reference > docs/reference/where.md"


def test_the_module_prints_the_page():
    printed = subprocess.run(
        [sys.executable, "-m", "agentworld.query.reference"], capture_output=True, text=True, check=True, timeout=150
    )
    assert printed.stdout == reference()


def first_columns(table):
    """The columns by which an index of the table finds rows."""
    unique = [c for c in table.constraints if getattr(c, "columns", None) and type(c).__name__ == "UniqueConstraint"]
    return {next(iter(index.columns)).name for index in [*table.indexes, *unique]}


def test_a_field_that_is_said_to_have_an_index_has_one():
    of_readiness = {"open", "complete", "ready", "excluded"}
    columns = {"user": "user_id", "policy.model": "policy_model", **dict.fromkeys(of_readiness, "readiness")}
    columns["review"] = "state"
    by_trajectory = {"trajectory_id", "group_id", "status", "user", "priority"}
    for field in FIELDS:
        for subject in field.indexed:
            table = schema.trajectories if field.name in by_trajectory else getattr(schema, subject)
            if field.name == "review":
                table = schema.reviews
            assert columns.get(field.name, field.name) in first_columns(table), (field.name, subject)
    # From a trajectory to its steps.
    assert "trajectory" in first_columns(schema.steps)
