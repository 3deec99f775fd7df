"""Evaluate an expression on values, as the stores' SQL does."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from agentworld.query.expression import (
    Comparison,
    Conjunction,
    Disjunction,
    Expression,
    FieldRef,
    Flag,
    Membership,
    Not,
)

Lookup = Callable[[FieldRef], Any]
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def evaluate(expression: Expression, lookup: Lookup) -> bool:
    """Whether the expression holds; `lookup` gives a field's value, None where it is absent."""
    match expression:
        case Conjunction(items):
            return all(evaluate(item, lookup) for item in items)
        case Disjunction(items):
            return any(evaluate(item, lookup) for item in items)
        case Not(item):
            return not evaluate(item, lookup)
        case Flag(field):
            return lookup(field) is True
        case Membership(field, values):
            found = lookup(field)
            return any(_equal(found, value) for value in values)
        case Comparison(field, "==", value):
            return _equal(lookup(field), value)
        case Comparison(field, "!=", value):
            return not _equal(lookup(field), value)
        case Comparison(field, order, value):
            found = lookup(field)
            return _type(found) == _type(value) and _ORDER[order](found, value)


def _equal(first: Any, second: Any) -> bool:
    return _type(first) == _type(second) and bool(first == second)


def _type(value: Any) -> str:
    """JSON's type: true is not 1, a number is one type."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    return type(value).__name__
