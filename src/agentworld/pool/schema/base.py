"""What the tables are made with: one registry, types, and tables whose numbers grow."""

from __future__ import annotations

from typing import Any

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


def growing(name: str, *columns: Column[object] | UniqueConstraint | Index, full: int | None = None) -> Table:
    """A table whose numbers are never used twice, so that cursors and sequences stay valid after deletions: they come
    from a counter (Transaction.next_pk), not from the engine.

    `full`: percent of a page that PostgreSQL fills with new rows; the rest is for what they change to.
    """
    key = Column("pk", Whole, primary_key=True, autoincrement=False)
    options: dict[str, Any] = {} if full is None else {"postgresql_with": {"fillfactor": full}}
    return Table(name, metadata, key, *columns, **options)


def where_there(name: str, column: str, *further: str) -> Index:
    """An index of the rows that have the column, for one that most rows may lack; by it, then by the `further` ones."""
    there = text(f"{column} IS NOT NULL")
    return Index(name, column, *further, sqlite_where=there, postgresql_where=there)


def in_order_of_pk(name: str, column: str, by: str) -> list[Index]:
    """An index of the rows that have the column, by an expression of it and then by `pk`, for each engine: SQLite's
    entries end with the primary key by themselves, and would hold it twice.
    """
    there = text(f"{column} IS NOT NULL")
    return [
        Index(name, text(by), sqlite_where=there).ddl_if(dialect="sqlite"),
        Index(name, text(by), text("pk"), postgresql_where=there).ddl_if(dialect="postgresql"),
    ]


def by_block(name: str, column: str) -> Index:
    """An index that tells of any 2,048 rows in a row which have the column in a range: a page of a range of times looks
    at the blocks that follow, and at no time sorts all that is in the range.
    """
    # PostgreSQL reads the table to compute an expression again, where the index does not hold what it is made from.
    return Index(name, text(f"(pk >> {BLOCK_BITS})"), column, postgresql_include=["pk"])
