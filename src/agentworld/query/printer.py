"""Expressions as text, in one form: parsing it gives the same tree."""

from __future__ import annotations

from agentworld.query.expression import (
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
    Value,
)
from agentworld.query.times import written_duration, written_moment

_ESCAPES = str.maketrans({"'": "\\'", "\n": "\\n", "\t": "\\t", "\r": "\\r"})


def printed(expression: Expression) -> str:
    """The expression's canonical text."""
    match expression:
        case Disjunction(items):
            return " or ".join(map(printed, items))
        case Conjunction(items):
            return " and ".join(f"({printed(i)})" if isinstance(i, Disjunction) else printed(i) for i in items)
        case Not(Membership(field, values)):
            return f"{field} not in ({_list(field, values)})"
        case Not(Like(field, pattern)):
            return f"{field} not like {_pattern(pattern)}"
        case Not(Conjunction() | Disjunction() as item):
            return f"not ({printed(item)})"
        case Not(item):
            return f"not {printed(item)}"
        case Membership(field, values):
            return f"{field} in ({_list(field, values)})"
        case Like(field, pattern):
            return f"{field} like {_pattern(pattern)}"
        case Comparison(field, "==", None):
            return f"{field} is null"
        case Comparison(field, "!=", None):
            return f"{field} is not null"
        case Comparison(field, operator, value):
            return f"{field} {operator} {_value(field, value)}"
        case Has(field):
            return f"has {field}"
        case Flag(field):
            return str(field)


def _list(field: FieldRef, values: tuple[Value, ...]) -> str:
    return ", ".join(_value(field, value) for value in values)


def _value(field: FieldRef, value: Value) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case Now(offset):
            sign = "-" if offset < 0 else "+"
            return "now" if offset == 0 else f"now {sign} {written_duration(abs(offset))}"
        case str():
            return "'" + value.replace("\\", "\\\\").translate(_ESCAPES) + "'"
        case _:
            moment = written_moment(value) if field.field.kind == "time" else None
            return repr(value) if moment is None else moment


def _pattern(pattern: str) -> str:
    return "'" + pattern.translate(_ESCAPES) + "'"
