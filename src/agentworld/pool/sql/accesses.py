"""Ways to the next rows of a page that one condition leads to, as statements that leave the engine no choice.

Engines choose badly here: SQLite guesses that any index finds ten rows, and PostgreSQL sorts a million matches for a
page of a hundred. Statements give primary keys over `above` and under `below`, in the order of the page, at most
`limit`. They are built when they are wanted first, which takes longer than many a search.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal

from sqlalchemy import ColumnElement, Select, and_, func, literal_column, or_, select, union_all

from agentworld.pool import schema
from agentworld.pool.schema import BLOCK_BITS, Whole
from agentworld.pool.sql.lookups import among_integers
from agentworld.pool.sql.statements import Statement, compiled, parameter
from agentworld.query import Subject

Order = Literal["oldest", "newest"]
_s, _t = schema.steps, schema.trajectories


class Access:
    """One condition that an index finds rows by.

    `text`: the condition as it is written. `exact`: nothing else is asked for.
    """

    def __init__(self, subject: Subject, order: Order, text: str, exact: bool) -> None:
        self._pk, self._order = key_of(subject), order
        self.text, self.exact = text, exact

    def _page(self, found: Select[Any], pk: ColumnElement[Any]) -> Statement:
        return compiled(found.order_by(sorted_by(pk, self._order)).limit(parameter("limit")))

    def _between(self, pk: ColumnElement[Any]) -> ColumnElement[bool]:
        return and_(pk > parameter("above"), pk < parameter("below"))


class Countable(Access):
    """A condition of which an index tells how many rows it finds, be it up to a cap."""

    def __init__(
        self, subject: Subject, order: Order, text: str, exact: bool, asked: Sequence[ColumnElement[bool]]
    ) -> None:
        super().__init__(subject, order, text, exact)
        self._asked = asked

    @functools.cached_property
    def count(self) -> Statement:
        """How many rows it finds, up to `cap`."""
        return compiled(select(func.count()).select_from(self._capped().subquery()))

    def _capped(self) -> Select[Any]:
        return select(self._pk).where(*self._asked).limit(parameter("cap"))


class Gathered(Countable):
    """Rows in the order of some other value: all are found, at most `cap`, and sorted."""

    @functools.cached_property
    def keys(self) -> Statement:
        """The next keys, where there are at most `cap`."""
        capped = self._capped().subquery()
        return self._page(select(capped.c.pk).where(self._between(capped.c.pk)), capped.c.pk)


class Ordered(Gathered):
    """Rows of a few values (`branches`, which have no row in common), of each in the order of pages."""

    def __init__(
        self, subject: Subject, order: Order, text: str, exact: bool, branches: Sequence[ColumnElement[bool]]
    ) -> None:
        super().__init__(subject, order, text, exact, [or_(*branches)])
        self._branches = branches

    @functools.cached_property
    def in_order(self) -> Statement:
        """The next keys, however many there are."""
        pages = [select(self._pk).where(branch, self._between(self._pk)) for branch in self._branches]
        if len(pages) == 1:
            return self._page(pages[0], self._pk)
        limited = [
            page.order_by(sorted_by(self._pk, self._order)).limit(parameter("limit")).subquery() for page in pages
        ]
        merged = union_all(*(select(each.c.pk) for each in limited)).subquery()
        return self._page(select(merged.c.pk), merged.c.pk)


class OfTrajectories(Countable):
    """Steps of the trajectories that meet a condition: their first steps on, trajectory by trajectory; `count` counts
    trajectories.
    """

    def __init__(self, order: Order, text: str, exact: bool, owners: Sequence[ColumnElement[bool]]) -> None:
        super().__init__("steps", order, text, exact, owners)

    def _capped(self) -> Select[Any]:
        return select(_t.c.pk).where(*self._asked).limit(parameter("cap"))

    @functools.cached_property
    def firsts(self) -> Statement:
        """The trajectories with the next steps, each with its next one, where at most `cap` meet the condition."""
        owners = self._capped().subquery()
        nearest = func.min(_s.c.pk) if self._order == "oldest" else func.max(_s.c.pk)
        first = select(nearest).where(_s.c.trajectory == owners.c.pk, self._between(_s.c.pk)).scalar_subquery()
        # The limit keeps SQLite from looking for the first step thrice.
        found = select(owners.c.pk, first.label("first")).limit(parameter("cap")).subquery()
        return self._page(select(found.c.pk, found.c.first).where(found.c.first.is_not(None)), found.c.first)

    @functools.cached_property
    def keys(self) -> Statement:
        """The next steps of the trajectories whose keys are `owners`."""
        among = among_integers(_s.c.trajectory, "owners")
        return self._page(select(_s.c.pk).where(among, self._between(_s.c.pk)), _s.c.pk + 0)


class InBlocks(Access):
    """Rows of a range of times, which lie together but for clocks that differ: an index by blocks of primary keys, then
    by time tells each block that has any.
    """

    def __init__(
        self, subject: Subject, order: Order, text: str, exact: bool, asked: Sequence[ColumnElement[bool]]
    ) -> None:
        super().__init__(subject, order, text, exact)
        self._asked = asked
        # As in the index, to the letter.
        self._block: ColumnElement[Any] = self._pk.op(">>", return_type=Whole)(literal_column(str(BLOCK_BITS), Whole))

    @functools.cached_property
    def blocks(self) -> Statement:
        """Those of the blocks from `first` to `last` that have rows, in any order."""
        numbers = select(parameter("first").cast(Whole).label("block")).cte("numbers", recursive=True)
        numbers = numbers.union_all(select(numbers.c.block + 1).where(numbers.c.block < parameter("last")))
        table = self._pk.table
        # A sum, since SQLite would convert what is in the index to the type of a column before it compares.
        found = self._block == numbers.c.block + 0
        # No EXISTS, which PostgreSQL makes a join with all rows of the range; and in the order of the index, since it
        # thinks that the rows of a block stand anywhere in the table, so that reading on from its beginning finds one.
        inside: Select[Any] = (
            select(table.c.created_at).where(found, *self._asked).order_by(table.c.created_at).limit(1)
        )
        return compiled(select(numbers.c.block).where(inside.correlate(numbers).scalar_subquery().is_not(None)))

    @functools.cached_property
    def keys(self) -> Statement:
        """The next keys of the `blocks`; `above` and `below` may be no further away than they are."""
        inside = select(self._pk).where(among_integers(self._block, "blocks"), *self._asked)
        return self._page(inside.where(self._between(self._pk)), self._pk + 0)


def key_of(subject: Subject) -> ColumnElement[Any]:
    """The primary key of what is listed."""
    return _s.c.pk if subject == "steps" else _t.c.pk


def sorted_by(pk: ColumnElement[Any], order: Order) -> ColumnElement[Any]:
    """The order of a page."""
    return pk.desc() if order == "newest" else pk.asc()
