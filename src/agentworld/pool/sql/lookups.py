"""Conditions that leave the engines no choice of how rows are found.

Neither engine knows how few rows a list of keys or a position in a sequence leaves. So they may choose the index of a
condition that nearly every row meets, or read a whole table to join it with a short list.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from sqlalchemy import Boolean, ColumnElement, Select, Text, bindparam, case
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.operators import OperatorType


def unindexed(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """The same condition, computed for the rows that the other conditions find."""
    return case((condition, 1), else_=0) == 1


class _IsOneOf(FunctionElement[bool]):
    inherit_cache = False
    type = Boolean()

    def __init__(self, column: ColumnElement[Any], name: str, kind: Literal["BIGINT", "TEXT"]) -> None:
        self.kind = kind
        super().__init__(column, bindparam(name, required=False, type_=Text()))

    def self_group(self, against: OperatorType | None = None) -> Self:
        """The condition as it is: SQLAlchemy would add `= 1` on SQLite, which then reads the whole table."""
        return self


def among_integers(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """Whether the column is one of the whole numbers of a JSON list parameter: a look-up for each of them."""
    return _IsOneOf(column, name, "BIGINT")


def among_texts(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """Whether the column is one of the texts of a JSON list parameter: a look-up for each of them."""
    return _IsOneOf(column, name, "TEXT")


class _IsAmongRows(FunctionElement[bool]):
    inherit_cache = False
    type = Boolean()

    def self_group(self, against: OperatorType | None = None) -> Self:
        """See _IsOneOf."""
        return self


def among_rows(column: ColumnElement[Any], keys: Select[Any]) -> ColumnElement[bool]:
    """Whether the column is one of the keys that are selected: these first, then a look-up for each of them."""
    return _IsAmongRows(column, keys.correlate(None).scalar_subquery())


@compiles(_IsAmongRows, "sqlite")
def _rows_on_sqlite(element: _IsAmongRows, compiler: SQLCompiler, **options: Any) -> str:
    column, selected = (compiler.process(clause, **options) for clause in element.clauses)
    return f"{column} IN {selected}"


@compiles(_IsAmongRows, "postgresql")
def _rows_on_postgres(element: _IsAmongRows, compiler: SQLCompiler, **options: Any) -> str:
    column, selected = (compiler.process(clause, **options) for clause in element.clauses)
    return f"{column} = ANY(ARRAY{selected})"


@compiles(_IsOneOf, "sqlite")
def _on_sqlite(element: _IsOneOf, compiler: SQLCompiler, **options: Any) -> str:
    column, listed = (compiler.process(clause, **options) for clause in element.clauses)
    return f"{column} IN (SELECT value FROM json_each({listed}))"


@compiles(_IsOneOf, "postgresql")
def _on_postgres(element: _IsOneOf, compiler: SQLCompiler, **options: Any) -> str:
    column, listed = (compiler.process(clause, **options) for clause in element.clauses)
    value = "value" if element.kind == "TEXT" else "CAST(value AS BIGINT)"
    return (
        f"{column} = ANY(ARRAY(SELECT {value} FROM json_array_elements_text(CAST({listed} AS JSON)) AS listed(value)))"
    )
