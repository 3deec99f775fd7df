"""What the tables are made with: one registry, types, and tables whose numbers grow."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    MetaData,
    Table,
    UniqueConstraint,
    text,
)
from sqlalchemy import Text as AnyText

# 64 bits on every engine.
Whole = BigInteger().with_variant(Integer(), "sqlite")
# Ordered by code points, whatever the language of the server; its rules change with updates and would spoil indexes.
Text = AnyText().with_variant(AnyText(collation="C"), "postgresql")

metadata = MetaData()

BLOCK_BITS = 11  # Pages find times by blocks of so many bits of the primary key, 2,048 rows.


def growing(name: str, *columns: Column[object] | UniqueConstraint | Index) -> Table:
    """A table whose numbers are never used twice, so that cursors and sequences stay valid after deletions."""
    return Table(
        name, metadata, Column("pk", Whole, primary_key=True, autoincrement=False), *columns, sqlite_autoincrement=True
    )


def where_there(name: str, column: str, *more: str) -> Index:
    """An index of the rows that have the column, for one that most rows may lack; by `more` columns after it."""
    there = text(f"{column} IS NOT NULL")
    return Index(name, column, *more, sqlite_where=there, postgresql_where=there)


def by_block(name: str, column: str) -> Index:
    """An index that tells of any 2,048 rows in a row which have the column in a range: a page of a range of times looks
    at the blocks that follow, and at no time sorts all that is in the range.
    """
    # PostgreSQL reads the table to compute an expression again, where the index does not hold what it is made from.
    return Index(name, text(f"(pk >> {BLOCK_BITS})"), column, postgresql_include=["pk"])
