"""Pages of steps and trajectories: the next matches in commit order, within a budget of rows and time.

A page is full, or the last, or partial: where its budget ended the search, it holds what was found by then, and its
cursor goes on from there. Nothing of a page is kept between calls.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from agentworld.errors import QueryError
from agentworld.pool.base import check_limit, cursor_for, read_cursor
from agentworld.pool.sql import reads
from agentworld.pool.sql.connections import Reader, Row, SearchTimeoutError
from agentworld.pool.sql.plans import NEXT, ROWS, Access, Order, PagePlan, plan_page
from agentworld.pool.sql.statements import Explained, Statement, json_list
from agentworld.pool.sql.where import NOW
from agentworld.query import Subject

PAGE_SECONDS = 1.0  # after which a page with `where` ends with what it has
FEW, MANY = 10_000, 50_000  # matches of an index: taken at once; the most that are sorted for one page
_FIRST_CHUNK, _LARGEST_CHUNK = 1_000, 20_000  # rows that one statement looks at
_HIGHEST = 2**62

Way = Literal["few", "ordered", "walk"]


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


@dataclass(slots=True)
class _Range:
    above: int = 0
    below: int = _HIGHEST


class Search:
    """One search over primary keys. `position`: the last one looked at; `scanned`: how many rows were, with those that
    were deleted among them where it goes row by row.
    """

    def __init__(
        self,
        reader: Reader,
        subject: Subject,
        order: Order,
        plan: PagePlan,
        bound: Mapping[str, Any],
        *,
        limited: bool,
    ) -> None:
        self._reader, self._subject, self._order, self._plan = reader, subject, order, plan
        self._bound = dict(bound)
        self._limited = limited
        self._range = _Range()
        self._counts: dict[Access, tuple[int, int]] = {}
        self._begun = time.monotonic()
        self.position = 0
        self.scanned = 0
        self.exhausted = False

    def go_on_after(self, position: int) -> None:
        """Look only at what comes after `position` in the order of the page."""
        self.position = position
        if self._order == "oldest":
            self._range.above = position
        else:
            self._range.below = position

    def end_after(self, position: int) -> None:
        """Look, from the oldest on, at nothing that comes after `position`."""
        self._range.below = min(self._range.below, position + 1)

    def next_keys(self, count: int) -> list[int]:
        """The next primary keys, whatever their rows hold."""
        return self._keys(self._reader.execute(NEXT[self._subject, self._order], self._between(limit=count)))

    def matches(self, wanted: int) -> list[int]:
        """The next matches, until there are `wanted`, no more rows, or the budget is used."""
        if not self._plan.filtered:
            keys = self.next_keys(wanted)
            self.scanned, self.exhausted = len(keys), len(keys) < wanted
            return keys
        found: list[int] = []
        with self.within_time():
            way, access = self.choose(FEW)
            chunk = max(_FIRST_CHUNK, 2 * wanted)
            while len(found) < wanted and not self.exhausted and (left := self._rows_left()) > 0:
                found += self._look(way, access, min(chunk, left), wanted - len(found))
                if chunk < _LARGEST_CHUNK:
                    chunk = min(chunk * 4, _LARGEST_CHUNK)
                    if way != "few" and len(found) < wanted:
                        way, access = self.choose(MANY)  # Matches are rare, so an index is worth more work.
        return found

    def explain(self, way: Way, access: Access | None) -> list[str]:
        """The steps of one way, and the engine's plan of each."""
        if access is None:
            said = f"row by row, up to {reads.SCAN_ROWS:,} rows or {PAGE_SECONDS:g} s a page"
            return [said, *self._plan_of(self._plan.walk)]
        if way == "few":
            lines = [f"by an index: {access.text} finds {self._count(access, MANY):,} rows", *self._plan_of(access.few)]
        else:
            lines = [f"in the order of an index: {access.text}", *self._plan_of(access.ordered)]
        if not access.exact:
            lines += ["then each row of these", *self._plan_of(self._plan.chosen)]
        return lines

    def _plan_of(self, statement: Statement) -> list[str]:
        given = self._between(limit=100, cap=MANY + 1, rows=json_list([1]))
        rows = self._reader.execute(Explained(statement), given)
        last = len(rows[0].keys()) - 1 if rows else 0
        return [f"  {row[last]}" for row in rows]

    def choose(self, cap: int) -> tuple[Way, Access | None]:
        """How to look: by the condition that finds the least, at most `cap`; in the order of an index; row by row."""
        accesses = self._plan.accesses
        if len(accesses) > 1 or any(not access.in_order for access in accesses):
            least = min(accesses, key=lambda access: self._count(access, cap))
            if self._count(least, cap) <= cap:
                return "few", least
        for access in accesses:
            if access.in_order:
                return "ordered", access
        return "walk", None

    def _count(self, access: Access, cap: int) -> int:
        """How many rows the condition finds; where there are more than `cap`, `cap` + 1."""
        known = self._counts.get(access)
        if known is None or known[1] < min(cap, known[0]):
            rows = self._reader.execute(access.count, {**self._bound, "cap": cap + 1})
            known = self._counts[access] = (rows[0][0], cap)
        return known[0]

    def _look(self, way: Way, access: Access | None, size: int, wanted: int) -> list[int]:
        """The matches among the next `size` rows."""
        if access is None:
            return self._walk(size, wanted)
        statement = access.few if way == "few" else access.ordered
        keys = self._keys(self._reader.execute(statement, self._between(limit=size, cap=MANY + 1)))
        self.exhausted = len(keys) < size
        if not keys:
            return []
        matching = keys
        if not access.exact:
            rows = self._reader.execute(self._plan.chosen, {**self._bound, "rows": json_list(keys)})
            fitting = {row[0] for row in rows}
            matching = [key for key in keys if key in fitting]
        if len(matching) > wanted:
            matching = matching[:wanted]
            self.exhausted = False
            keys = keys[: keys.index(matching[-1]) + 1]
        self.scanned += len(keys)
        self.go_on_after(keys[-1])
        return matching

    def _walk(self, size: int, wanted: int) -> list[int]:
        first = self.next_keys(1)
        if not first:
            self.exhausted = True
            return []
        # By numbers, not by rows: the next statement skips what was deleted.
        if self._order == "oldest":
            bounds = {"above": first[0] - 1, "below": min(first[0] + size, self._range.below)}
        else:
            bounds = {"above": first[0] - size, "below": first[0] + 1}
        found = self._keys(self._reader.execute(self._plan.walk, {**self._bound, **bounds, "limit": wanted}))
        last = bounds["below"] - 1 if self._order == "oldest" else bounds["above"] + 1
        if len(found) == wanted:
            last = found[-1]
        self.go_on_after(last)
        if len(found) < wanted and not self.next_keys(1):
            self.exhausted = True
            ends: Order = "newest" if self._order == "oldest" else "oldest"
            between = {**self._bound, **bounds, "limit": 1}
            last = self._keys(self._reader.execute(NEXT[self._subject, ends], between))[0]
        self.scanned += abs(last - first[0]) + 1
        return found

    def _between(self, **more: Any) -> dict[str, Any]:
        return {**self._bound, "above": self._range.above, "below": self._range.below, **more}

    def _rows_left(self) -> int:
        if self._limited and self.scanned and time.monotonic() - self._begun > PAGE_SECONDS:
            return 0
        return reads.SCAN_ROWS - self.scanned

    @contextlib.contextmanager
    def within_time(self) -> Iterator[None]:
        """Statements inside end in time: QueryError, where no row had been looked at by then."""
        if not self._limited:
            yield
            return
        try:
            with self._reader.limited(reads.WHERE_SECONDS):
                yield
        except SearchTimeoutError:
            if self.scanned == 0:
                raise _too_slow() from None

    @staticmethod
    def _keys(rows: Sequence[Row]) -> list[int]:
        return [row[0] for row in rows]


def _too_slow() -> QueryError:
    return QueryError(
        f"the search with where took longer than {reads.WHERE_SECONDS:g} s",
        path="where",
        hint="Narrow it: filter by trajectory, group or channel, use fewer conditions, or fields without a key",
    )
