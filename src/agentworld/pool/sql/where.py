"""`where` expressions as SQL conditions with bound parameters.

Logic is two-valued as the language says: every condition gives true or false, never NULL.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, and_, case, exists, false, func, literal, not_, or_, select

from agentworld.pool import schema
from agentworld.pool.sql.rows import step_readiness
from agentworld.query import (
    Comparison,
    Conjunction,
    Disjunction,
    Expression,
    FieldRef,
    Flag,
    Membership,
    Not,
    Subject,
)
from agentworld.records.step import DEFAULT_RUN

Condition = ColumnElement[bool]
_s, _t, _p = schema.steps, schema.trajectories, schema.policies
_RENAMED = {"version": "policy_version", "policy.version": "policy_version", "policy.run": "policy_run"}
_OF_TRAJECTORY = ("trajectory_id", "group_id", "status", "task")
_JSON_TYPES: dict[type, tuple[str, ...]] = {str: ("text",), int: ("integer", "real"), float: ("integer", "real")}


def condition(expression: Expression, subject: Subject) -> Condition:
    """The condition over `steps` joined with `trajectories`, or over `trajectories`."""
    match expression:
        case Conjunction(items):
            return and_(*(condition(item, subject) for item in items))
        case Disjunction(items):
            return or_(*(condition(item, subject) for item in items))
        case Not(item):
            return not_(condition(item, subject))
        case Flag(field):
            return _flag(field, subject)
        case Membership(field, values):
            return or_(
                false(),
                *(_equal(field, value, subject) for value in _singles(field, values)),
                *_many(field, values, subject),
            )
        case Comparison(field, "==", value):
            return _equal(field, value, subject)
        case Comparison(field, "!=", value):
            return not_(_equal(field, value, subject))
        case Comparison(field, operator, value):
            return _ordered(field, operator, value, subject)


def _equal(field: FieldRef, value: Any, subject: Subject) -> Condition:
    kind = field.field.kind
    if kind == "boolean":
        flag = _flag(field, subject)
        return false() if value is None else flag if value else not_(flag)
    if kind == "json":
        column, path = _json(field, subject)
        found = func.coalesce(func.json_type(column, path), "null")
        if value is None:
            return found == "null"
        if isinstance(value, bool):
            return found == ("true" if value else "false")
        return and_(found.in_(_JSON_TYPES[type(value)]), func.json_extract(column, path) == value)
    column = _column(field, subject)
    return column.is_(None) if value is None else column.is_not_distinct_from(value)


def _ordered(field: FieldRef, operator: str, value: Any, subject: Subject) -> Condition:
    if field.field.kind == "json":
        document, path = _json(field, subject)
        found = func.coalesce(func.json_type(document, path), "null")
        return and_(found.in_(_JSON_TYPES[type(value)]), func.json_extract(document, path).op(operator)(value))
    column = _column(field, subject)
    return and_(column.is_not(None), column.op(operator)(value))


def _flag(field: FieldRef, subject: Subject) -> Condition:
    readiness = step_readiness if subject == "steps" else _t.c.readiness
    match field.field.name:
        case "late":
            return _s.c.late == 1
        case "complete":
            return readiness.in_(("complete", "ready"))
        case "open" | "ready" | "excluded" as name:
            return readiness == name
        case _:
            column, path = _json(field, subject)
            return func.coalesce(func.json_type(column, path), "null") == "true"


def _column(field: FieldRef, subject: Subject) -> ColumnElement[Any]:
    table = _s if subject == "steps" else _t
    name = field.field.name
    if name == "reward" and field.key is not None:
        return func.json_extract(table.c.rewards, _path([field.key]))
    if name == "readiness":
        return step_readiness if subject == "steps" else _t.c.readiness
    if name == "staleness":
        speaks = (_p.c.model == table.c.policy_model, _p.c.current == 1)
        current = select(_p.c.version).where(*speaks, _p.c.run == table.c.policy_run).scalar_subquery()
        # As rules.staleness: where no policy of the model was published, version 0 of the default run speaks.
        unpublished = case((table.c.policy_run == DEFAULT_RUN, 0))
        return case((exists().where(*speaks), current), else_=unpublished) - table.c.policy_version
    if name in _OF_TRAJECTORY:
        return _t.c[name]
    return table.c[_RENAMED.get(name, name.replace(".", "_"))]


def _json(field: FieldRef, subject: Subject) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
    """The JSON column and the path into it."""
    key = field.key or ""
    if field.field.name == "task":
        return _t.c.task, _path(key.split("."))
    table = _s if subject == "steps" else _t
    if field.field.name == "label":
        return table.c.labels, _path([key])
    return table.c.metadata, _path(key.split("."))


def _path(keys: list[str]) -> ColumnElement[Any]:
    # Keys hold letters, digits, dots, - and _ only, so quotes need no escape.
    return literal("$" + "".join(f'."{key}"' for key in keys))


def _singles(field: FieldRef, values: tuple[Any, ...]) -> list[Any]:
    """The values that need a condition of their own."""
    return [v for v in dict.fromkeys(values) if v is None or isinstance(v, bool) or field.field.kind == "boolean"]


def _many(field: FieldRef, values: tuple[Any, ...], subject: Subject) -> list[Condition]:
    """One condition for all texts, one for all numbers: SQLite bounds the depth of an expression, not its lists."""
    conditions: list[Condition] = []
    texts = [value for value in values if isinstance(value, str)]
    numbers = [value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
    for same_type in (texts, numbers):
        if same_type and field.field.kind == "json":
            column, path = _json(field, subject)
            found = func.coalesce(func.json_type(column, path), "null")
            types = _JSON_TYPES[type(same_type[0])]
            conditions.append(and_(found.in_(types), func.json_extract(column, path).in_(same_type)))
        elif same_type:
            own = _column(field, subject)
            conditions.append(and_(own.is_not(None), own.in_(same_type)))
    return conditions
