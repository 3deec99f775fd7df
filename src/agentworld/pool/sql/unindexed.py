"""Conditions that no engine answers with an index.

Neither engine knows how few rows a position in a sequence or a list of keys leaves, so it may choose the index of a
condition that nearly every row meets.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, case


def unindexed(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """The same condition, computed for the rows that the other conditions find."""
    return case((condition, 1), else_=0) == 1
