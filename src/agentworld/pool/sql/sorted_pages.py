"""Pages of trajectories in the order of a value, within the budget of rows and time of other pages.

Where a condition finds few, all of these are sorted. Otherwise entries of the value's index are gone through in their
order, in looks that grow, and those that match are kept.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, or_, select

from agentworld.pool import schema
from agentworld.pool.sorting import Entry, Sort, comes_after, cursor_after, in_order, read_cursor_after, read_sort
from agentworld.pool.sql import reads
from agentworld.pool.sql.connections import Reader
from agentworld.pool.sql.lookups import among_integers
from agentworld.pool.sql.pages import FoundPage, new_search, rows_of
from agentworld.pool.sql.plans import PagePlan, plan_page
from agentworld.pool.sql.search import FEW, PAGE_SECONDS, Search
from agentworld.pool.sql.statements import NO_INDEX, Statement, json_list, parameter, sql
from agentworld.pool.sql.where import NOW

_t = schema.trajectories
_COLUMNS: dict[str, tuple[ColumnElement[Any], str]] = {
    "reward": (_t.c.reward, "trajectories_by_reward"),
    "priority": (_t.c.priority, "trajectories_by_priority"),
    "status": (_t.c.status, "trajectories_by_status"),
    "readiness": (_t.c.readiness, "trajectories_by_readiness"),
    "channel": (_t.c.channel, "trajectories_by_channel"),
    "group_id": (_t.c.group_id, "trajectories_by_group"),
    "user": (_t.c.user_id, "trajectories_by_user"),
}
_FIRST_LOOK, _LARGEST_LOOK, _GROWTH = 200, 20_000, 4


def sorted_page(
    reader: Reader,
    where: str | None,
    filters: Mapping[str, str | None],
    sort: str,
    order: str,
    cursor: str | None,
    limit: int,
    now: float,
) -> FoundPage:
    """One page; see `pages.page_of_rows`."""
    by = read_sort(sort, order)
    after = read_cursor_after(cursor, by)
    search = new_search(reader, "trajectories", where, filters, "oldest", None, limit, now)
    given = {name: value for name, value in filters.items() if value is not None}
    plan = plan_page("trajectories", where, tuple(given), "oldest")
    found = _all_of_few(reader, search, plan, by, after)
    if found is None:
        walk = _Walk(reader, search, plan, {**given, NOW: now}, by, after)
        kept = walk.matches(limit + 1)
        more = None if walk.ended else walk.at
        scanned = walk.scanned
    else:
        kept, more, scanned = found, None, search.scanned
    if len(kept) > limit:
        kept = kept[:limit]
        more = kept[-1]
    rows = rows_of(reader, "trajectories", [entry.number for entry in kept])
    return FoundPage(
        rows, None if more is None else cursor_after(by, more), more is not None and len(kept) < limit, scanned
    )


def _all_of_few(reader: Reader, search: Search, plan: PagePlan, by: Sort, after: Entry | None) -> list[Entry] | None:
    """All matches after `after`; None where no condition tells that they are few."""
    if not plan.filtered:
        return None
    keys: list[int] | None = None
    with search.within_time():
        if search.finds_few(FEW):
            keys = search.matches(FEW + 1)
    if keys is None or not search.exhausted:
        return None
    rows = reader.execute(_values(by.name), {"rows": json_list(keys)})
    entries = [Entry(row[1], row[0]) for row in rows]
    return [entry for entry in in_order(entries, by) if comes_after(entry, after, by)]


class _Walk:
    """Through the entries of the value's index. `at`: the last one looked at; `ended`: there are no more."""

    def __init__(
        self, reader: Reader, search: Search, plan: PagePlan, bound: Mapping[str, Any], by: Sort, after: Entry | None
    ) -> None:
        self._reader, self._search, self._plan, self._bound, self._by = reader, search, plan, bound, by
        self.at = after
        self.ended = False
        self.scanned = 0

    def matches(self, wanted: int) -> list[Entry]:
        """The next matches, until there are `wanted`, no more entries, or the budget is used."""
        found: list[Entry] = []
        begun, look = time.monotonic(), max(_FIRST_LOOK, wanted)
        # What was counted for the choice of a way is no entry of this one.
        self._search.scanned = 0
        with self._search.within_time():
            while len(found) < wanted and not self.ended:
                left = reads.SCAN_ROWS - self.scanned
                if left <= 0 or (self.scanned and time.monotonic() - begun > PAGE_SECONDS):
                    break
                for entry in self._next(wanted - len(found) if not self._plan.filtered else min(look, left)):
                    found.append(entry)
                    if len(found) == wanted:
                        self.at = entry
                        return found
                look = min(look * _GROWTH, _LARGEST_LOOK)
        return found

    def _next(self, size: int) -> Iterator[Entry]:
        """The matches among the next `size` entries, which are looked at all before the first one is given."""
        absent = self.at is not None and self.at.value is None
        which = "absent" if absent else "first" if self.at is None else "rest"
        given: dict[str, Any] = {"limit": size}
        if self.at is not None:
            given["number"] = self.at.number
            if not absent:
                given["value"] = self.at.value
        rows = self._reader.execute(_entries(self._by, which), given)
        entries = [Entry(row[1], row[0]) for row in rows]
        if len(entries) < size and not absent:
            given = {"limit": size - len(entries), "number": 2**62 if self._by.down else 0}
            entries += [Entry(None, row[0]) for row in self._reader.execute(_entries(self._by, "absent"), given)]
        fitting = {entry.number for entry in entries}
        if self._plan.filtered and entries:
            asked = {**self._bound, "rows": json_list([entry.number for entry in entries])}
            fitting = {row[0] for row in self._reader.execute(self._plan.chosen, asked)}
        self.scanned += len(entries)
        self._search.scanned = self.scanned
        self.ended = len(entries) < size
        if entries:
            self.at = entries[-1]
        return (entry for entry in entries if entry.number in fitting)


@functools.cache
def _values(name: str) -> Statement:
    """The values of the named `rows`."""
    found = select(_t.c.pk, _COLUMNS[name][0]).where(among_integers(_t.c.pk, "rows"))
    return sql(found.with_hint(_t, NO_INDEX, "sqlite"))


@functools.cache
def _entries(by: Sort, which: str) -> Statement:
    """The next `limit` entries of the index: its `first` ones, the `rest` after an entry, those without value."""
    column, index = _COLUMNS[by.name]
    pk: ColumnElement[Any] = _t.c.pk
    value, number = parameter("value"), parameter("number")
    further = pk < number if by.down else pk > number
    found: Select[Any] = select(pk, column).with_hint(_t, f"INDEXED BY {index}", "sqlite").limit(parameter("limit"))
    if which == "absent":
        return sql(found.where(column.is_(None), further).order_by(pk.desc() if by.down else pk))
    if which == "rest":
        on = column <= value if by.down else column >= value
        beyond = column < value if by.down else column > value
        found = found.where(and_(on, or_(beyond, further)))
    found = found.where(column.is_not(None))
    return sql(found.order_by(column.desc() if by.down else column, pk.desc() if by.down else pk))
