"""`where` expressions as SQL conditions with bound parameters.

Logic is two-valued as the language says: every condition gives true or false, never NULL. `now` is the parameter
NOW, which the caller gives with the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Float,
    Select,
    Text,
    and_,
    bindparam,
    case,
    exists,
    false,
    func,
    literal,
    not_,
    or_,
    select,
    true,
)

from agentworld.pool import schema
from agentworld.pool.exact_text import storable
from agentworld.pool.sql.json_functions import (
    by_code_point,
    fits_pattern,
    json_integer,
    json_kind,
    json_list_has,
    json_real,
    json_text,
)
from agentworld.pool.sql.numbers import Condition, Number, Numeric
from agentworld.pool.sql.rows import PROMPT_MESSAGES, RESPONSE_IDS
from agentworld.pool.values import REVIEWED
from agentworld.query import (
    Comparison,
    Conjunction,
    Disjunction,
    Expression,
    FieldRef,
    Flag,
    Has,
    Like,
    Membership,
    Not,
    Now,
    Subject,
    evaluate,
    with_texts,
)
from agentworld.query.expression import Condition as Leaf
from agentworld.records.step import DEFAULT_RUN

NOW = "now"
_s, _t, _p, _r = schema.steps, schema.trajectories, schema.policies, schema.reviews
_RENAMED = {"user": "user_id"}
_OF_TRAJECTORY = ("trajectory_id", "group_id", "status", "task", "user", "priority")
_READINESS = ("open", "complete", "ready", "excluded")


def condition(expression: Expression, subject: Subject) -> Condition:
    """The condition over `steps` joined with `trajectories`, or over `trajectories`."""
    return _condition(with_texts(expression, storable), subject)


def _condition(expression: Expression, subject: Subject) -> Condition:
    match expression:
        case Conjunction(items):
            return and_(*(_condition(item, subject) for item in items))
        case Disjunction(items):
            return or_(*(_condition(item, subject) for item in items))
        case Not(item):
            return not_(_condition(item, subject))
        case _:
            return _leaf(expression, subject)


def _leaf(leaf: Leaf, subject: Subject) -> Condition:
    field = leaf.field
    match field.field.kind:
        case "boolean":
            return _boolean(leaf, subject)
        case "presence":
            return _presence(field, subject)
        case "text" if field.field.name == "readiness":
            return _readiness({name for name in _READINESS if _holds(leaf, name)}, subject)
        case "text" if field.field.name == "review":
            return _review({name for name in (None, *REVIEWED) if _holds(leaf, name)})
    match leaf:
        case Has():
            return not_(_is_null(field, subject))
        case Flag():
            return json_kind(*_json(field, subject)) == "true"
        case Like(_, pattern):
            return _certain(field, subject, lambda text: fits_pattern(text, pattern))
        case Membership(_, values):
            return _one_of(field, values, subject)
        case Comparison(_, "==", value):
            return _equal(field, value, subject)
        case Comparison(_, "!=", value):
            return not_(_equal(field, value, subject))
        case Comparison(_, operator, value):
            if isinstance(value, Now):
                return _certain(field, subject, lambda time: time.op(operator, is_comparison=True)(_moment(value)))
            if isinstance(value, str):
                bound = literal(value, Text)
                return _certain(
                    field, subject, lambda text: by_code_point(text).op(operator, is_comparison=True)(bound)
                )
            return _number(field, subject).compared(operator, _as_number(value))


def _equal(field: FieldRef, value: Any, subject: Subject) -> Condition:
    if value is None:
        return _is_null(field, subject)
    if isinstance(value, bool):
        return json_kind(*_json(field, subject)) == ("true" if value else "false")
    if isinstance(value, Now):
        return _certain(field, subject, lambda time: time == _moment(value))
    if isinstance(value, str):
        return _certain(field, subject, lambda text: text == literal(value, Text))
    return _number(field, subject).compared("==", value)


def _one_of(field: FieldRef, values: tuple[Any, ...], subject: Subject) -> Condition:
    # One condition for all texts, one for all numbers: SQLite bounds the depth of an expression, not its lists.
    texts = list(dict.fromkeys(value for value in values if isinstance(value, str)))
    numbers: list[Number] = [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]
    others = dict.fromkeys(value for value in values if value is None or isinstance(value, (bool, Now)))
    found = [_equal(field, value, subject) for value in others]
    if texts:
        listed = [literal(text, Text) for text in texts]
        found.append(_certain(field, subject, lambda text: text.in_(listed)))
    if numbers:
        found.append(_number(field, subject).is_one_of(numbers))
    return or_(false(), *found)


def _is_null(field: FieldRef, subject: Subject) -> Condition:
    if field.field.kind == "json":
        return json_kind(*_json(field, subject)) == "null"
    if field.field.kind == "number":
        return _number(field, subject).is_null()
    return _column(field, subject).is_(None)


def _certain(field: FieldRef, subject: Subject, test: Callable[[ColumnElement[Any]], Condition]) -> Condition:
    """A test of a text or a moment that is false where there is none."""
    if field.field.kind == "json":
        return func.coalesce(test(json_text(*_json(field, subject))), false())
    column = _column(field, subject)
    return and_(column.is_not(None), test(column))


def _holds(leaf: Leaf, value: str | bool | None) -> bool:
    """Whether it holds of what has `value` in its field."""
    return evaluate(leaf, lambda _: value)


def _boolean(leaf: Leaf, subject: Subject) -> Condition:
    # These fields are never absent.
    name = leaf.field.field.name
    holds, fails = _holds(leaf, True), _holds(leaf, False)
    if holds == fails:
        return true() if holds else false()
    if name in ("late", "masked"):
        flag: Condition = (_s.c.late if name == "late" else _t.c.masked) == 1
        return flag if holds else not_(flag)
    wanted = {"complete", "ready"} if name == "complete" else {name}
    return _readiness(wanted if holds else set(_READINESS) - wanted, subject)


def _readiness(wanted: set[str], subject: Subject) -> Condition:
    of_trajectory = _t.c.readiness.in_(sorted(wanted)) if wanted else false()
    if subject == "trajectories":
        return of_trajectory
    if "excluded" in wanted:
        return or_(_s.c.excluded_reason.is_not(None), of_trajectory)
    return and_(_s.c.excluded_reason.is_(None), of_trajectory)


def _review(wanted: set[str | None]) -> Condition:
    # By the targets of reviews, which are few and have an index, and not by a look at the review of each trajectory.
    if None in wanted:
        others = set(REVIEWED) - wanted
        return _t.c.trajectory_id.not_in(_reviewed(others)) if others else true()
    return _t.c.trajectory_id.in_(_reviewed({name for name in wanted if name})) if wanted else false()


def _reviewed(states: set[str]) -> Select[Any]:
    """Ids of trajectories whose review is in one of these states, as review_rules.reviewed says."""
    fits = {
        "waiting": and_(_r.c.state == "open", _r.c.skipped_by.is_(None)),
        "skipped": and_(_r.c.state == "open", _r.c.skipped_by.is_not(None)),
        "accepted": and_(_r.c.state == "done", _r.c.verdict == "accept"),
        "rejected": and_(_r.c.state == "done", _r.c.verdict == "reject"),
    }
    return select(_r.c.target_id).where(_r.c.target == "trajectory", or_(*(fits[name] for name in sorted(states))))


def _presence(field: FieldRef, subject: Subject) -> Condition:
    match field.field.name:
        case "tokens":
            return _s.c.present.op("&")(RESPONSE_IDS) != 0
        case "logprobs":
            return _s.c.logprobs.is_not(None)
        case "messages":
            return and_(_s.c.present.op("&")(PROMPT_MESSAGES) != 0, _s.c.reply_node.is_not(None))
        case _:
            table = _s if subject == "steps" else _t
            return json_list_has(table.c.annotations, storable(field.key or ""))


def _number(field: FieldRef, subject: Subject) -> Numeric:
    table = _s if subject == "steps" else _t
    name = field.field.name
    if field.path:
        column, path = (table.c.rewards, _keys(field)) if name == "reward" else _json(field, subject)
        return Numeric(json_integer(column, path), json_real(column, path))
    if name == "staleness":
        return Numeric(whole=_staleness(table))
    column = _column(field, subject)
    return Numeric(real=column, column=True) if isinstance(column.type, Float) else Numeric(column, column=True)


def _staleness(table: Any) -> ColumnElement[Any]:
    speaks = (_p.c.model == table.c.policy_model, _p.c.current == 1)
    current = select(_p.c.version).where(*speaks, _p.c.run == table.c.policy_run).scalar_subquery()
    # As rules.staleness: where no policy of the model was published, version 0 of the default run speaks.
    unpublished = case((table.c.policy_run == DEFAULT_RUN, 0))
    speaking: ColumnElement[Any] = case((exists().where(*speaks), current), else_=unpublished)
    staleness: ColumnElement[Any] = speaking - table.c.policy_version
    return staleness


def _column(field: FieldRef, subject: Subject) -> ColumnElement[Any]:
    name = field.field.name
    table = _s if subject == "steps" and name not in _OF_TRAJECTORY else _t
    if name == "excluded_reason" and table is _t:
        # As rules.shown_reason.
        return func.coalesce(_t.c.excluded_reason, case((_t.c.readiness == "excluded", _t.c.status)))
    return table.c[_RENAMED.get(name, name.replace(".", "_"))]


def _json(field: FieldRef, subject: Subject) -> tuple[ColumnElement[Any], list[str]]:
    """The JSON column and the keys into it."""
    table = _s if subject == "steps" else _t
    columns = {"task": _t.c.task, "label": table.c.labels, "metadata": table.c.metadata}
    return columns[field.field.name], _keys(field)


def _keys(field: FieldRef) -> list[str]:
    return [storable(key) for key in field.path]


def _moment(now: Now) -> ColumnElement[Any]:
    return bindparam(NOW, required=False, type_=Float()) + literal(now.offset, Float)


def _as_number(value: Any) -> Number:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    raise TypeError(f"{value!r} has no order")
