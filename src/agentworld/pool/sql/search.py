"""The search for the rows of one page, in the order of primary keys, by the way that gets on fastest.

An index that finds few rows is looked through at once. Otherwise rows come in the order of pages, by an index or row by
row, in looks that grow; the more of them a page has taken, the more rows of an index are worth counting and sorting. So
a page costs what its rows and those next to them cost, whatever the pool's size.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agentworld.errors import QueryError
from agentworld.pool.schema import BLOCK_BITS
from agentworld.pool.sql import reads
from agentworld.pool.sql.accesses import Access, Countable, Gathered, InBlocks, OfTrajectories, Order, Ordered
from agentworld.pool.sql.connections import Reader, Row, SearchTimeoutError
from agentworld.pool.sql.plans import NEXT, PagePlan
from agentworld.pool.sql.statements import Explained, Statement, json_list
from agentworld.query import Subject

PAGE_SECONDS = 1.0  # after which a page with `where` ends with what it has
FEW, MANY = 1_000, 50_000  # matches of an index: taken at once; the most that are sorted for one page
OWNERS = 4  # One trajectory, of which the next step is looked up, takes as long as so many entries of an index.
_FIRST_CHUNK, _LARGEST_CHUNK = 200, 20_000  # rows that one look goes through
_FIRST_BLOCKS = 8
_FIRST_OWNERS = 4
_GROWTH = 4
_HIGHEST = 2**62

Way = Literal["few", "ordered", "walk"]


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
        self._paces: dict[Access, float] = {}  # by how much of the pool each row brought the search on
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
        return self._keys(NEXT[self._subject, self._order], limit=count)

    def matches(self, wanted: int) -> list[int]:
        """The next matches, until there are `wanted`, no more rows, or the budget is used."""
        if not self._plan.filtered:
            keys = self.next_keys(wanted)
            self.scanned, self.exhausted = len(keys), len(keys) < wanted
            return keys
        found: list[int] = []
        with self.within_time():
            cap, chunk = FEW, max(_FIRST_CHUNK, 2 * wanted)
            while len(found) < wanted and not self.exhausted and (left := self._rows_left()) > 0:
                way, access = self.choose(cap)
                found += self._look(way, access, min(chunk, left), wanted - len(found))
                # How many more rows it will take, where matches go on as they were; so many an index is worth.
                ahead = (wanted - len(found)) * self.scanned // max(1, len(found))
                cap = min(cap * _GROWTH, max(cap, ahead), MANY)
                chunk = min(chunk * _GROWTH, max(_FIRST_CHUNK, ahead), _LARGEST_CHUNK)
        return found

    def explain(self, way: Way, access: Access | None) -> list[str]:
        """The steps of one way, and the engine's plan of each."""
        statements: list[Statement]
        around: dict[str, int] = {}
        match access:
            case None:
                said = f"row by row, up to {reads.SCAN_ROWS:,} rows or {PAGE_SECONDS:g} s a page"
                return [said, *self._plan_of(self._plan.walk)]
            case InBlocks():
                said, statements = f"by blocks of {1 << BLOCK_BITS:,} rows: {access.text}", [access.blocks, access.keys]
                around = self._around([0])
            case OfTrajectories():
                count = self._count(access, MANY)
                said = f"by an index, then trajectory by trajectory: {access.text} finds {count:,} trajectories"
                statements = [access.firsts, access.keys]
            case Ordered() if way == "ordered":
                said, statements = f"in the order of an index: {access.text}", [access.in_order]
            case Gathered():
                said = f"by an index: {access.text} finds {self._count(access, MANY):,} rows"
                statements = [access.keys]
        lines = [said, *(line for statement in statements for line in self._plan_of(statement, **around))]
        if not access.exact:
            lines += ["then each row of these", *self._plan_of(self._plan.chosen)]
        return lines

    def _plan_of(self, statement: Statement, **around: int) -> list[str]:
        one = json_list([1])
        given = self._between(limit=100, cap=MANY + 1, rows=one, owners=one, blocks=one, first=0, last=1, **around)
        rows = self._reader.execute(Explained(statement), given)
        last = len(rows[0].keys()) - 1 if rows else 0
        return [f"  {row[last]}" for row in rows]

    def choose(self, cap: int) -> tuple[Way, Access | None]:
        """How to look: by the condition that finds the least, at most `cap`; in the order of an index; row by row."""
        accesses = self._plan.accesses
        ordered = [access for access in accesses if isinstance(access, (Ordered, InBlocks))]
        for access in ordered:
            if access.exact or len(accesses) == 1:
                return "ordered", access
        countable = [access for access in accesses if isinstance(access, Countable)]
        if countable:
            least = min(countable, key=lambda access: self._cost(access, cap))
            if self._cost(least, cap) <= cap:
                return "few", least
        if ordered:
            # Each once, then the one that skips the most of the pool.
            return "ordered", max(ordered, key=lambda access: self._paces.get(access, _HIGHEST))
        return "walk", None

    def finds_few(self, cap: int) -> bool:
        """Whether a condition finds `cap` rows at most."""
        return any(isinstance(one, Countable) and self._cost(one, cap) <= cap for one in self._plan.accesses)

    def _cost(self, access: Countable, cap: int) -> int:
        if isinstance(access, OfTrajectories):
            return OWNERS * self._count(access, cap // OWNERS)
        return self._count(access, cap)

    def _count(self, access: Countable, cap: int) -> int:
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
        if access.exact:
            size = min(size, wanted)
        elif isinstance(access, OfTrajectories):
            size = max(size, FEW)  # Each look begins with all of its trajectories.
        before, self.exhausted = self.position, False
        keys, end = self._next_of(way, access, size)
        matching = keys
        if keys and not access.exact:
            rows = self._reader.execute(self._plan.chosen, {**self._bound, "rows": json_list(keys)})
            fitting = {row[0] for row in rows}
            matching = [key for key in keys if key in fitting]
        if len(matching) > wanted:
            matching = matching[:wanted]
            keys = keys[: keys.index(matching[-1]) + 1]
            end = keys[-1]
        self.scanned += len(keys)
        if end is None:
            self.exhausted = True
            if keys:
                self.go_on_after(keys[-1])
        else:
            self.go_on_after(end)
            self._paces[access] = abs(end - before) / max(1, len(keys))
        return matching

    def _next_of(self, way: Way, access: Access, size: int) -> tuple[list[int], int | None]:
        """The next keys that an access finds, and up to where these are all; None for the end of the pool."""
        match access:
            case InBlocks():
                return self._in_blocks(access, size)
            case OfTrajectories():
                keys = self._of_trajectories(access, size)
            case Ordered() if way == "ordered":
                keys = self._keys(access.in_order, limit=size)
            case Gathered():
                keys = self._keys(access.keys, limit=size, cap=MANY + 1)
        return keys, keys[-1] if len(keys) == size else None

    def _in_blocks(self, access: InBlocks, size: int) -> tuple[list[int], int | None]:
        ends = self.next_keys(1), self._keys(NEXT[self._subject, self._opposite], limit=1)
        if not ends[0]:
            return [], None
        at, last = (end[0] >> BLOCK_BITS for end in ends)
        away = 1 if self._order == "oldest" else -1
        span = _FIRST_BLOCKS
        keys: list[int] = []
        while len(keys) < size and (last - at) * away >= 0:
            to = at + away * min(span - 1, abs(last - at))
            given = {**self._bound, "first": min(at, to), "last": max(at, to)}
            blocks = sorted((row[0] for row in self._reader.execute(access.blocks, given)), reverse=away < 0)
            span *= _GROWTH
            at = to + away
            count = 1
            while blocks and len(keys) < size:
                now, blocks = blocks[:count], blocks[count:]
                got = self._keys(access.keys, blocks=json_list(now), limit=size - len(keys), **self._around(now))
                keys += got
                # As many as will do where they hold what these did.
                count = min(count * _GROWTH, -(-(size - len(keys)) * len(now) // max(1, len(got))))
        return keys, keys[-1] if len(keys) == size else None

    def _around(self, blocks: list[int]) -> dict[str, int]:
        """What of the range lies in and between these blocks."""
        first, end = min(blocks) << BLOCK_BITS, max(blocks) + 1 << BLOCK_BITS
        return {"above": max(first - 1, self._range.above), "below": min(end, self._range.below)}

    def _of_trajectories(self, access: OfTrajectories, size: int) -> list[int]:
        firsts = self._reader.execute(access.firsts, self._between(limit=size, cap=MANY + 1))
        keys: list[int] = []
        count = _FIRST_OWNERS
        while True:
            # The steps before the first one of the next trajectory are all of these.
            owners = json_list([row[0] for row in firsts[:count]])
            beyond = firsts[count][1] if count < len(firsts) else None
            given = self._between(owners=owners, limit=size)
            if beyond is not None:
                given["below" if self._order == "oldest" else "above"] = beyond
            keys = [row[0] for row in self._reader.execute(access.keys, given)]
            if len(keys) == size or beyond is None:
                return keys
            count *= _GROWTH

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
        found = self._keys(self._plan.walk, **bounds, limit=wanted)
        last = bounds["below"] - 1 if self._order == "oldest" else bounds["above"] + 1
        if len(found) == wanted:
            last = found[-1]
        self.go_on_after(last)
        if len(found) < wanted and not self.next_keys(1):
            self.exhausted = True
            last = self._keys(NEXT[self._subject, self._opposite], **bounds, limit=1)[0]
        self.scanned += abs(last - first[0]) + 1
        return found

    @property
    def _opposite(self) -> Order:
        return "newest" if self._order == "oldest" else "oldest"

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

    def _keys(self, statement: Statement, **given: Any) -> list[int]:
        rows: Sequence[Row] = self._reader.execute(statement, self._between(**given))
        return [row[0] for row in rows]


def _too_slow() -> QueryError:
    return QueryError(
        f"the search with where took longer than {reads.WHERE_SECONDS:g} s",
        path="where",
        hint="Narrow it: filter by trajectory, group or channel, use fewer conditions, or fields without a key",
    )
