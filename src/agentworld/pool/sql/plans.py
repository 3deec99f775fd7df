"""How the rows of a page can be found: by the conditions that an index answers, or by walking rows in their order.

Engines choose badly here: SQLite guesses that any index finds ten rows, and PostgreSQL sorts a million matches for a
page of a hundred. So each way is a statement of its own that leaves the engine no choice, and `pages` picks one by
counting, up to a bound, what each condition finds.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal

from sqlalchemy import ColumnElement, Select, Subquery, and_, func, not_, or_, select, union_all

from agentworld.pool import schema
from agentworld.pool.sql.lookups import among_integers, among_rows, unindexed
from agentworld.pool.sql.rows import select_steps, select_trajectories
from agentworld.pool.sql.statements import NO_INDEX, Statement, compiled, parameter, sql
from agentworld.pool.sql.where import condition
from agentworld.query import (
    Comparison,
    Conjunction,
    Disjunction,
    Expression,
    Flag,
    Membership,
    Not,
    Subject,
    conditions,
    parse,
    printed,
    uses_index,
)

Order = Literal["oldest", "newest"]
_s, _t = schema.steps, schema.trajectories
# What `where` over steps reads from their trajectory.
_OF_TRAJECTORY = frozenset({"trajectory_id", "group_id", "status", "task", "user", "priority"})
_JOINED = _OF_TRAJECTORY | {"readiness", "open", "complete", "ready", "excluded"}
_FLAGS = {"open": ("open",), "complete": ("complete", "ready"), "ready": ("ready",), "excluded": ("excluded",)}
# Columns whose index gives the rows of one value in the order of pages.
_ORDERED: dict[Subject, dict[str, ColumnElement[Any]]] = {
    "steps": {"channel": _s.c.channel},
    "trajectories": {
        "channel": _t.c.channel,
        "status": _t.c.status,
        "readiness": _t.c.readiness,
        "group_id": _t.c.group_id,
        "user": _t.c.user_id,
    },
}
_MAX_BRANCHES = 20


class Access:
    """One condition that an index finds rows by; statements give primary keys over `above` and under `below`.

    `text`: the condition as it is written. `exact`: nothing else is asked for. Statements are built when they are
    wanted first, which takes longer than many a search.
    """

    def __init__(
        self,
        subject: Subject,
        order: Order,
        text: str,
        asked: Sequence[ColumnElement[bool]],
        branches: Sequence[ColumnElement[bool]],
        exact: bool,
    ) -> None:
        self._pk, self._order, self._asked, self._branches = _key(subject), order, asked, branches
        self.text = text
        self.exact = exact
        self.in_order = bool(branches)

    @functools.cached_property
    def count(self) -> Statement:
        """How many rows it finds, up to `cap`."""
        return compiled(select(func.count()).select_from(self._capped()))

    @functools.cached_property
    def few(self) -> Statement:
        """The next `limit` of the rows, for a condition that finds at most `cap`."""
        capped = self._capped()
        between = select(capped.c.pk).where(capped.c.pk > parameter("above"), capped.c.pk < parameter("below"))
        return compiled(between.order_by(_sorted_by(capped.c.pk, self._order)).limit(parameter("limit")))

    @functools.cached_property
    def ordered(self) -> Statement:
        """The next `limit` straight from an index that is `in_order`."""
        selects = [self._next(branch) for branch in self._branches]
        if len(selects) == 1:
            return compiled(selects[0])
        # Branches have no row in common.
        merged = union_all(*(select(each.subquery().c.pk) for each in selects)).subquery()
        return compiled(select(merged.c.pk).order_by(_sorted_by(merged.c.pk, self._order)).limit(parameter("limit")))

    def _next(self, branch: ColumnElement[bool]) -> Select[Any]:
        between = and_(self._pk > parameter("above"), self._pk < parameter("below"))
        key = self._pk
        if getattr(branch, "left", None) is _s.c.trajectory:
            # A trajectory is short beside the pool. Where PostgreSQL does not know, it walks all steps in order.
            between, key = unindexed(between), self._pk + 0
        return select(self._pk).where(branch, between).order_by(_sorted_by(key, self._order)).limit(parameter("limit"))

    def _capped(self) -> Subquery:
        return select(self._pk).where(*self._asked).limit(parameter("cap")).subquery()


class PagePlan:
    """The ways to a page; `filtered`: anything is asked for at all."""

    def __init__(self, subject: Subject, order: Order, accesses: Sequence[Access], matching: Select[Any]) -> None:
        self._pk, self._order, self._matching = _key(subject), order, matching
        self.accesses = tuple(accesses)
        self.filtered = matching.whereclause is not None

    @functools.cached_property
    def walk(self) -> Statement:
        """The next `limit` matches, row by row."""
        between = self._matching.where(self._pk > parameter("above"), self._pk < parameter("below"))
        return compiled(between.order_by(_sorted_by(self._pk, self._order)).limit(parameter("limit")))

    @functools.cached_property
    def chosen(self) -> Statement:
        """The matches among the named `rows`."""
        return compiled(self._matching.where(among_integers(self._pk, "rows")))


NEXT: dict[tuple[Subject, Order], Statement] = {}
ROWS: dict[Subject, Statement] = {}
for _subject, _table, _selected in (("steps", _s, select_steps()), ("trajectories", _t, select_trajectories())):
    for _order, _sorted in (("oldest", _table.c.pk.asc()), ("newest", _table.c.pk.desc())):
        _next = select(_table.c.pk).where(_table.c.pk > parameter("above"), _table.c.pk < parameter("below"))
        NEXT[_subject, _order] = sql(_next.order_by(_sorted).limit(parameter("limit")))  # type: ignore[index]
    ROWS[_subject] = sql(  # type: ignore[index]
        _selected.where(among_integers(_table.c.pk, "rows")).with_hint(_table, NO_INDEX, "sqlite")
    )


@functools.lru_cache(maxsize=256)
def plan_page(subject: Subject, where: str | None, filters: tuple[str, ...], order: Order) -> PagePlan:
    """The plan for a query; `filters` names the parameters trajectory_id, group_id and channel that are given.

    Cached by the text, since the trees of `x == 1` and `x == true` are equal to Python.
    """
    expression = parse(where, subject) if where is not None else None
    found = [_filter(subject, name) for name in filters]
    asked = [each for each, _ in found]
    names = set(filters)
    if expression is not None:
        asked.append(condition(expression, subject))
        names |= {leaf.field.field.name for leaf in conditions(expression)}
    parts = list(expression.items) if isinstance(expression, Conjunction) else [expression] if expression else []
    single = len(filters) + len(parts) == 1
    accesses = [
        Access(subject, order, f"{name} == ...", [each], branches, single)
        for name, (each, branches) in zip(filters, found, strict=True)
    ]
    accesses += _accesses(subject, order, parts, single)
    return PagePlan(subject, order, accesses, _matching(subject, asked, not names.isdisjoint(_JOINED)))


def _accesses(subject: Subject, order: Order, parts: Sequence[Expression], single: bool) -> list[Access]:
    """One for each condition that an index answers; those on one field, such as a range of times, together."""
    together: dict[str, list[Expression]] = {}
    found = []
    for part in parts:
        names = {leaf.field.field.name.partition(".")[0] for leaf in conditions(part)}
        if len(names) == 1 and isinstance(part, Comparison) and part.operator != "!=":
            together.setdefault(names.pop(), []).append(part)
        else:
            found.append([part])
    found += together.values()
    accesses = []
    for several in found:
        if not any(uses_index(part, subject) for part in several):
            continue
        names = {leaf.field.field.name for part in several for leaf in conditions(part)}
        asked = [condition(part, subject) for part in several]
        if subject == "steps" and names & _OF_TRAJECTORY:
            if names <= _OF_TRAJECTORY:
                asked = [among_rows(_s.c.trajectory, select(_t.c.pk).where(*asked))]
            elif names & _JOINED <= _OF_TRAJECTORY:
                asked = [_of_steps_alone(part) for part in several]
            else:
                continue
        branches = _branches(several[0], subject) if len(several) == 1 else ()
        text = " and ".join(map(printed, several))
        accesses.append(Access(subject, order, text, asked, branches, single or len(several) == len(parts)))
    return accesses


def _of_steps_alone(expression: Expression) -> ColumnElement[bool]:
    """A condition over steps that joins no trajectories, so that each alternative can use its own index."""
    match expression:
        case Conjunction(items):
            return and_(*map(_of_steps_alone, items))
        case Disjunction(items):
            return or_(*map(_of_steps_alone, items))
        case Not(item):
            return not_(_of_steps_alone(item))
        case _:
            found = condition(expression, "steps")
            through = expression.field.field.name in _OF_TRAJECTORY
            return among_rows(_s.c.trajectory, select(_t.c.pk).where(found)) if through else found


def _branches(part: Expression, subject: Subject) -> tuple[ColumnElement[bool], ...]:
    """The condition as disjoint equalities of a column whose index keeps the order of pages; none where it is not."""
    match part:
        case Comparison(field, "==", value) if not field.path:
            name, values = field.field.name, [value]
        case Membership(field, several) if not field.path:
            name, values = field.field.name, list(dict.fromkeys(several))
        case Flag(field) if field.field.name in _FLAGS:
            name, values = "readiness", list(_FLAGS[field.field.name])
        case _:
            return ()
    if name in _FLAGS and values == [True]:
        name, values = "readiness", list(_FLAGS[name])
    if len(values) > _MAX_BRANCHES or not all(isinstance(value, str) for value in values):
        return ()
    if subject == "steps" and name == "trajectory_id":
        return tuple(
            _s.c.trajectory == select(_t.c.pk).where(_t.c.trajectory_id == value).scalar_subquery() for value in values
        )
    column = _ORDERED[subject].get(name)
    return () if column is None else tuple(column == value for value in values)


def _filter(subject: Subject, name: str) -> tuple[ColumnElement[bool], tuple[ColumnElement[bool], ...]]:
    """The condition of a filter whose value is the parameter of that name, and its branches."""
    given = parameter(name)
    if subject == "trajectories":
        plain: ColumnElement[bool] = _t.c[name] == given
        return plain, (plain,)
    if name == "channel":
        return _s.c.channel == given, (_s.c.channel == given,)
    owner = select(_t.c.pk).where(_t.c[name] == given)
    if name == "trajectory_id":
        one: ColumnElement[bool] = _s.c.trajectory == owner.scalar_subquery()
        return one, (one,)
    return among_rows(_s.c.trajectory, owner), ()


def _matching(subject: Subject, asked: Sequence[ColumnElement[bool]], joined: bool) -> Select[Any]:
    """Matches, found by their primary key alone; `joined`: steps with their trajectories."""
    if subject == "trajectories":
        return select(_t.c.pk).where(*asked).with_hint(_t, NO_INDEX, "sqlite")
    found = select(_s.c.pk).where(*asked).with_hint(_s, NO_INDEX, "sqlite")
    return found.join_from(_s, _t, _s.c.trajectory == _t.c.pk) if joined else found


def _key(subject: Subject) -> ColumnElement[Any]:
    return _s.c.pk if subject == "steps" else _t.c.pk


def _sorted_by(pk: ColumnElement[Any], order: Order) -> ColumnElement[Any]:
    return pk.desc() if order == "newest" else pk.asc()
