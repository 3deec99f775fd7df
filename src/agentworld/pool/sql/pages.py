"""Pages of steps and trajectories: the next matches in commit order, within a budget of rows and time.

A page is full, or the last, or partial: where its budget ended the search, it holds what was found by then, and its
cursor goes on from there. Nothing of a page is kept between calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agentworld.pool.base import check_limit, check_where, cursor_for, read_cursor
from agentworld.pool.sql.accesses import Order
from agentworld.pool.sql.connections import Reader, Row
from agentworld.pool.sql.plans import ROWS, plan_page
from agentworld.pool.sql.search import FEW, MANY, Search
from agentworld.pool.sql.statements import json_list
from agentworld.pool.sql.where import NOW
from agentworld.query import Subject


class FoundKeys(NamedTuple):
    """Primary keys in the order of the page; see Page for the rest."""

    keys: list[int]
    next_cursor: str | None
    partial: bool
    scanned: int


class FoundPage(NamedTuple):
    """Rows of select_steps or select_trajectories in the order of the page; see Page for the rest."""

    rows: list[Row]
    next_cursor: str | None
    partial: bool
    scanned: int


def page_of_rows(
    reader: Reader,
    subject: Subject,
    where: str | None,
    filters: Mapping[str, str | None],
    order: Order,
    cursor: str | None,
    limit: int,
    now: float,
) -> FoundPage:
    """One page; `now` is what `where` means by it. QueryError where not even a first few rows could be searched."""
    found = page_of_keys(reader, subject, where, filters, order, cursor, limit, now)
    return FoundPage(rows_of(reader, subject, found.keys), *found[1:])


def page_of_keys(
    reader: Reader,
    subject: Subject,
    where: str | None,
    filters: Mapping[str, str | None],
    order: Order,
    cursor: str | None,
    limit: int,
    now: float,
    until: int | None = None,
) -> FoundKeys:
    """As `page_of_rows`, without the rows. `until`: the last primary key that pages in the order `oldest` go to."""
    search = new_search(reader, subject, where, filters, order, cursor, limit, now)
    if until is not None:
        search.end_after(until)
    keys = search.matches(limit + 1)
    kept = keys[:limit]
    more = None if search.exhausted else cursor_for(search.position, order)
    if len(keys) > limit:
        more = cursor_for(kept[-1], order)
    return FoundKeys(kept, more, more is not None and len(kept) < limit, search.scanned)


def new_search(
    reader: Reader,
    subject: Subject,
    where: str | None,
    filters: Mapping[str, str | None],
    order: Order,
    cursor: str | None,
    limit: int,
    now: float,
) -> Search:
    """The search for a page, where its cursor says that it begins."""
    check_limit(limit)
    after = read_cursor(cursor, order)
    given = {name: value for name, value in filters.items() if value is not None}
    check_where(where)
    plan = plan_page(subject, where, tuple(given), order)
    search = Search(reader, subject, order, plan, {**given, NOW: now}, limited=where is not None)
    if after is not None:
        search.go_on_after(after)
    return search


def explain_page(reader: Reader, subject: Subject, where: str, now: float) -> list[str]:
    """How the first page of a query is looked for, one line each: what this package does, then the engine's plan."""
    search = new_search(reader, subject, where, {}, "oldest", None, 100, now)
    with search.within_time():
        way, access = search.choose(FEW)
        lines = search.explain(way, access)
        if way != "few":
            rarely = search.choose(MANY)
            if rarely != (way, access):
                lines += ["where that finds few:", *search.explain(*rarely)]
    return lines


def rows_of(reader: Reader, subject: Subject, keys: Sequence[int]) -> list[Row]:
    """The rows with these primary keys, in their order; those that are gone are left out."""
    found = {row["pk"]: row for row in reader.execute(ROWS[subject], {"rows": json_list(keys)})} if keys else {}
    return [found[key] for key in keys if key in found]
