"""Pages of trajectories in the order of a value, within the budget of rows and time of other pages.

Where a condition finds few, all of these are sorted. Otherwise entries of the value's index are gone through in their
order, in looks that grow, and those that match are kept. Rows without the value, which come last, are in no index: for
them all rows are gone through, as for any condition without one.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Column, ColumnElement, Select, and_, or_, select

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
_COLUMNS: dict[str, tuple[Column[Any], str]] = {
    "reward": (_t.c.reward, "trajectories_by_reward"),
    "priority": (_t.c.priority, "trajectories_by_priority"),
    "status": (_t.c.status, "trajectories_by_status"),
    "readiness": (_t.c.readiness, "trajectories_by_readiness"),
    "channel": (_t.c.channel, "trajectories_by_channel"),
    "group_id": (_t.c.group_id, "trajectories_by_group"),
    "user": (_t.c.user_id, "trajectories_by_user"),
}
_BEHIND_ALL = 2**62
_FIRST_LOOK, _LARGEST_LOOK, _GROWTH = 200, 20_000, 4
_LARGEST_ROWS = 5_000  # whole rows, which are wider than entries


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
    """Through the entries of the value's index, then through the rows that lack it. `at`: the last one looked at;
    `ended`: there are no more.
    """

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
                if self.at is not None and self.at.value is None:
                    matching = self._without_value(self.at.number, min(look, left, _LARGEST_ROWS))
                else:
                    matching = self._with_value(
                        self.at, min(look, left) if self._plan.filtered else wanted - len(found)
                    )
                for entry in matching:
                    found.append(entry)
                    if len(found) == wanted:
                        self.at, self.ended = entry, False
                        return found
                look = min(look * _GROWTH, _LARGEST_LOOK)
        return found

    def _with_value(self, after: Entry | None, size: int) -> list[Entry]:
        """The matches among the next `size` entries."""
        given: dict[str, Any] = {"limit": size}
        if after is not None:
            given |= {"number": after.number, "value": after.value}
        rows = self._reader.execute(_entries(self._by, after is None), given)
        entries = [Entry(row[1], row[0]) for row in rows]
        if len(entries) == size:
            self.at = entries[-1]
        elif _COLUMNS[self._by.name][0].nullable:
            self.at = Entry(None, _BEHIND_ALL if self._by.down else 0)
        else:
            self.ended = True
        return self._fitting(entries, len(entries))

    def _without_value(self, after: int, size: int) -> list[Entry]:
        """The matches among the next `size` rows, as far as they lack the value."""
        rows = self._reader.execute(_rows(self._by), {"number": after, "limit": size})
        if len(rows) < size:
            self.ended = True
        else:
            self.at = Entry(None, rows[-1][0])
        return self._fitting([Entry(None, row[0]) for row in rows if row[1] is None], len(rows))

    def _fitting(self, entries: list[Entry], looked_at: int) -> list[Entry]:
        self.scanned += looked_at
        self._search.scanned = self.scanned
        if not self._plan.filtered or not entries:
            return entries
        asked = {**self._bound, "rows": json_list([entry.number for entry in entries])}
        fitting = {row[0] for row in self._reader.execute(self._plan.chosen, asked)}
        return [entry for entry in entries if entry.number in fitting]


@functools.cache
def _values(name: str) -> Statement:
    """The values of the named `rows`."""
    found = select(_t.c.pk, _COLUMNS[name][0]).where(among_integers(_t.c.pk, "rows"))
    return sql(found.with_hint(_t, NO_INDEX, "sqlite"))


@functools.cache
def _entries(by: Sort, first: bool) -> Statement:
    """The next `limit` entries of the index: its `first` ones, or those after one."""
    column, index = _COLUMNS[by.name]
    pk: ColumnElement[Any] = _t.c.pk
    value, number = parameter("value"), parameter("number")
    found: Select[Any] = select(pk, column).with_hint(_t, f"INDEXED BY {index}", "sqlite").limit(parameter("limit"))
    if not first:
        on = column <= value if by.down else column >= value
        beyond = column < value if by.down else column > value
        further = pk < number if by.down else pk > number
        found = found.where(and_(on, or_(beyond, further)))
    found = found.where(column.is_not(None))
    return sql(found.order_by(column.desc() if by.down else column, pk.desc() if by.down else pk))


@functools.cache
def _rows(by: Sort) -> Statement:
    """The next `limit` rows with the value that they have, if any."""
    pk = _t.c.pk
    further = pk < parameter("number") if by.down else pk > parameter("number")
    found = select(pk, _COLUMNS[by.name][0]).where(further).order_by(pk.desc() if by.down else pk)
    return sql(found.with_hint(_t, NO_INDEX, "sqlite").limit(parameter("limit")))
