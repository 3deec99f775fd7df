"""How the rows of a page can be found: by the conditions that an index answers, or by walking rows in their order.

`search` picks one way by what each condition finds, counted up to a bound, and by what each has brought so far.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, not_, or_, select

from agentworld.pool import schema
from agentworld.pool.exact_text import storable
from agentworld.pool.sql.accesses import Access, Gathered, InBlocks, OfTrajectories, Order, Ordered, key_of, sorted_by
from agentworld.pool.sql.lookups import among_integers, among_rows
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
    with_texts,
)

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
_LONG = 800  # characters


class PagePlan:
    """The ways to a page; `filtered`: anything is asked for at all."""

    def __init__(self, subject: Subject, order: Order, accesses: Sequence[Access], matching: Select[Any]) -> None:
        self._pk, self._order, self._matching = key_of(subject), order, matching
        self.accesses = tuple(accesses)
        self.filtered = matching.whereclause is not None

    @functools.cached_property
    def walk(self) -> Statement:
        """The next `limit` matches, row by row."""
        between = self._matching.where(self._pk > parameter("above"), self._pk < parameter("below"))
        return compiled(between.order_by(sorted_by(self._pk, self._order)).limit(parameter("limit")))

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


def plan_page(subject: Subject, where: str | None, filters: tuple[str, ...], order: Order) -> PagePlan:
    """The plan for a query; `filters` names the parameters trajectory_id, group_id and channel that are given.

    Cached by the text, since the trees of `x == 1` and `x == true` are equal to Python; few of long ones, such as lists
    of ids, whose plans take half a megabyte and are soon asked for no more.
    """
    long = where is not None and len(where) > _LONG
    return (_plan_of_long if long else _plan_of_short)(subject, where, filters, order)


def _plan(subject: Subject, where: str | None, filters: tuple[str, ...], order: Order) -> PagePlan:
    expression = parse(where, subject) if where is not None else None
    parts = list(expression.items) if isinstance(expression, Conjunction) else [expression] if expression else []
    single = len(filters) + len(parts) == 1
    asked, accesses = [], []
    names = set(filters)
    for name in filters:
        each, access = _filter(subject, order, name, single)
        asked.append(each)
        accesses.append(access)
    if expression is not None:
        asked.append(condition(expression, subject))
        names |= _names(expression)
    accesses += _accesses(subject, order, parts, alone=not filters)
    return PagePlan(subject, order, accesses, _matching(subject, asked, not names.isdisjoint(_JOINED)))


_plan_of_short = functools.lru_cache(maxsize=256)(_plan)
_plan_of_long = functools.lru_cache(maxsize=8)(_plan)


def _names(*expressions: Expression) -> set[str]:
    return {leaf.field.field.name for expression in expressions for leaf in conditions(expression)}


def _accesses(subject: Subject, order: Order, parts: Sequence[Expression], alone: bool) -> list[Access]:
    """One for each condition that an index answers; those on one field, such as a range of times, together."""
    together: dict[str, list[Expression]] = {}
    found = []
    for part in parts:
        names = {name.partition(".")[0] for name in _names(part)}
        if len(names) == 1 and isinstance(part, Comparison) and part.operator != "!=":
            together.setdefault(names.pop(), []).append(part)
        else:
            found.append([part])
    found += together.values()
    accesses: list[Access] = []
    for several in found:
        if not any(uses_index(part, subject) for part in several):
            continue
        names = _names(*several)
        asked = [condition(part, subject) for part in several]
        text = " and ".join(map(printed, several))
        exact = alone and len(several) == len(parts)
        branches = _branches(several, asked, subject)
        if names == {"created_at"}:
            accesses.append(InBlocks(subject, order, text, exact, asked))
        elif branches:
            accesses.append(Ordered(subject, order, text, exact, branches))
        elif subject == "trajectories" or names.isdisjoint(_JOINED):
            accesses.append(Gathered(subject, order, text, exact, asked))
        elif names <= _OF_TRAJECTORY:
            accesses.append(OfTrajectories(order, text, exact, asked))
        elif names & _JOINED <= _OF_TRAJECTORY:
            accesses.append(Gathered(subject, order, text, exact, [_of_steps_alone(part) for part in several]))
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


def _branches(
    several: Sequence[Expression], asked: Sequence[ColumnElement[bool]], subject: Subject
) -> Sequence[ColumnElement[bool]]:
    """The condition as disjoint equalities whose index keeps the order of pages; none where it is not."""
    if subject == "trajectories" and {
        part.field.field.name for part in several if isinstance(part, Comparison) and part.operator == "=="
    } >= {"policy.model", "policy.run", "policy.version"}:
        return [and_(*asked)] if len(several) == 3 else ()
    if len(several) > 1:
        return ()
    match with_texts(several[0], storable):
        case Comparison(field, "==", value) if not field.path:
            name, values = field.field.name, [value]
        case Membership(field, listed) if not field.path:
            name, values = field.field.name, list(dict.fromkeys(listed))
        case Flag(field) if field.field.name in _FLAGS:
            name, values = "readiness", list(_FLAGS[field.field.name])
        case _:
            return ()
    if name in _FLAGS and values == [True]:
        name, values = "readiness", list(_FLAGS[name])
    if len(values) > _MAX_BRANCHES or not all(isinstance(value, str) for value in values):
        return ()
    if subject == "steps" and name == "trajectory_id":
        return [
            _s.c.trajectory == select(_t.c.pk).where(_t.c.trajectory_id == value).scalar_subquery() for value in values
        ]
    column = _ORDERED[subject].get(name)
    return () if column is None else [column == value for value in values]


def _filter(subject: Subject, order: Order, name: str, exact: bool) -> tuple[ColumnElement[bool], Access]:
    """The condition of a filter whose value is the parameter of that name, and how its rows are found."""
    given, text = parameter(name), f"{name} == ..."
    if subject == "steps" and name == "group_id":
        owned: ColumnElement[bool] = _t.c.group_id == given
        return among_rows(_s.c.trajectory, select(_t.c.pk).where(owned)), OfTrajectories(order, text, exact, [owned])
    if subject == "steps" and name == "trajectory_id":
        owner = select(_t.c.pk).where(_t.c.trajectory_id == given).scalar_subquery()
        asked: ColumnElement[bool] = _s.c.trajectory == owner
    else:
        asked = (_s if subject == "steps" else _t).c[name] == given
    return asked, Ordered(subject, order, text, exact, [asked])


def _matching(subject: Subject, asked: Sequence[ColumnElement[bool]], joined: bool) -> Select[Any]:
    """Matches, found by their primary key alone; `joined`: steps with their trajectories."""
    if subject == "trajectories":
        return select(_t.c.pk).where(*asked).with_hint(_t, NO_INDEX, "sqlite")
    found = select(_s.c.pk).where(*asked).with_hint(_s, NO_INDEX, "sqlite")
    return found.join_from(_s, _t, _s.c.trajectory == _t.c.pk) if joined else found
