"""How the rows of a page can be found: by the conditions that an index answers, or by walking rows in their order.

Engines choose badly here: SQLite guesses that any index finds ten rows, and PostgreSQL sorts a million matches for a
page of a hundred. So each way is a statement of its own that leaves the engine no choice, and `pages` picks one by
counting, up to a bound, what each condition finds.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import ColumnElement, Select, func, select, union_all

from agentworld.pool import schema
from agentworld.pool.sql.rows import select_steps, select_trajectories
from agentworld.pool.sql.statements import NO_INDEX, Statement, compiled, integers, parameter, sql
from agentworld.pool.sql.where import condition
from agentworld.query import (
    Comparison,
    Conjunction,
    Expression,
    Flag,
    Membership,
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


@dataclass(frozen=True, slots=True)
class Access:
    """One condition that an index finds rows by; statements give primary keys over `above` and under `below`.

    `count`: how many rows it finds, up to `cap`. `few`: the next `limit` of those, for conditions that find at most
    `cap`. `ordered`: the next `limit` straight from the index; None where it gives no order. `exact`: nothing else is
    asked for.
    """

    text: str
    count: Statement
    few: Statement
    ordered: Statement | None
    exact: bool


@dataclass(frozen=True, slots=True)
class PagePlan:
    """The ways to a page. `walk`: matches between `above` and `below`. `chosen`: matches among the named `rows`."""

    accesses: tuple[Access, ...]
    walk: Statement
    chosen: Statement
    filtered: bool  # anything is asked for at all


NEXT: dict[tuple[Subject, Order], Statement] = {}
ROWS: dict[Subject, Statement] = {}
for _subject, _table, _selected in (("steps", _s, select_steps()), ("trajectories", _t, select_trajectories())):
    for _order, _sorted in (("oldest", _table.c.pk.asc()), ("newest", _table.c.pk.desc())):
        _next = select(_table.c.pk).where(_table.c.pk > parameter("above"), _table.c.pk < parameter("below"))
        NEXT[_subject, _order] = sql(_next.order_by(_sorted).limit(parameter("limit")))  # type: ignore[index]
    ROWS[_subject] = sql(  # type: ignore[index]
        _selected.where(_table.c.pk.in_(integers("rows"))).with_hint(_table, NO_INDEX, "sqlite")
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
        _access(subject, order, f"{name} == ...", [each], branches, single)
        for name, (each, branches) in zip(filters, found, strict=True)
    ]
    accesses += _accesses(subject, order, parts, single)
    matching = _matching(subject, asked, subject == "steps" and not names.isdisjoint(_JOINED))
    pk = _key(subject)
    between = matching.where(pk > parameter("above"), pk < parameter("below"))
    return PagePlan(
        accesses=tuple(accesses),
        walk=compiled(between.order_by(_sorted_by(pk, order)).limit(parameter("limit"))),
        chosen=compiled(matching.where(pk.in_(integers("rows")))),
        filtered=bool(asked),
    )


def _accesses(subject: Subject, order: Order, parts: Sequence[Expression], single: bool) -> list[Access]:
    found = []
    policy = [part for part in parts if all(leaf.field.field.name.startswith("policy.") for leaf in conditions(part))]
    if any(uses_index(part, subject) for part in policy):
        text = " and ".join(map(printed, policy))
        found.append(_access(subject, order, text, [condition(part, subject) for part in policy], (), False))
    for part in parts:
        names = {leaf.field.field.name for leaf in conditions(part)}
        if part in policy or not uses_index(part, subject):
            continue
        if subject == "steps" and names & _OF_TRAJECTORY:
            if names <= _OF_TRAJECTORY:
                through = _s.c.trajectory.in_(select(_t.c.pk).where(condition(part, subject)))
                found.append(_access(subject, order, printed(part), [through], _branches(part, subject), single))
            continue
        branches = _branches(part, subject)
        found.append(_access(subject, order, printed(part), [condition(part, subject)], branches, single))
    return found


def _access(
    subject: Subject,
    order: Order,
    text: str,
    asked: Sequence[ColumnElement[bool]],
    branches: Sequence[ColumnElement[bool]],
    exact: bool,
) -> Access:
    pk = _key(subject)
    capped = select(pk).where(*asked).limit(parameter("cap")).subquery()
    between = select(capped.c.pk).where(capped.c.pk > parameter("above"), capped.c.pk < parameter("below"))
    return Access(
        text=text,
        count=compiled(select(func.count()).select_from(capped)),
        few=compiled(between.order_by(_sorted_by(capped.c.pk, order)).limit(parameter("limit"))),
        ordered=_ordered(pk, order, branches) if branches else None,
        exact=exact,
    )


def _ordered(pk: ColumnElement[Any], order: Order, branches: Sequence[ColumnElement[bool]]) -> Statement:
    """Each branch in the order of its index, merged."""
    selects = [
        select(pk)
        .where(branch, pk > parameter("above"), pk < parameter("below"))
        .order_by(_sorted_by(pk, order))
        .limit(parameter("limit"))
        for branch in branches
    ]
    if len(selects) == 1:
        return compiled(selects[0])
    merged = union_all(*(select(each.subquery().c.pk) for each in selects)).subquery()
    return compiled(
        select(merged.c.pk).order_by(_sorted_by(merged.c.pk, order)).limit(parameter("limit"))  # Disjoint: no repeats.
    )


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
    return _s.c.trajectory.in_(owner), ()


def _matching(subject: Subject, asked: Sequence[ColumnElement[bool]], joined: bool) -> Select[Any]:
    if subject == "trajectories":
        return select(_t.c.pk).where(*asked).with_hint(_t, NO_INDEX, "sqlite")
    found = select(_s.c.pk).where(*asked).with_hint(_s, NO_INDEX, "sqlite")
    return found.join_from(_s, _t, _s.c.trajectory == _t.c.pk) if joined else found


def _key(subject: Subject) -> ColumnElement[Any]:
    return _s.c.pk if subject == "steps" else _t.c.pk


def _sorted_by(pk: ColumnElement[Any], order: Order) -> ColumnElement[Any]:
    return pk.desc() if order == "newest" else pk.asc()
