"""Evaluate an expression on values, as the stores' SQL does."""

from __future__ import annotations

import math
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
    Has,
    Like,
    Membership,
    Not,
    Now,
)
from agentworld.query.patterns import matches

Lookup = Callable[[FieldRef], Any]
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_INT64 = range(-(2**63), 2**63)


def evaluate(expression: Expression, lookup: Lookup) -> bool:
    """Whether the (bound) expression holds; `lookup` gives a field's value, None where it is absent."""
    match expression:
        case Conjunction(items):
            return all(evaluate(item, lookup) for item in items)
        case Disjunction(items):
            return any(evaluate(item, lookup) for item in items)
        case Not(item):
            return not evaluate(item, lookup)
        case Flag(field):
            return lookup(field) is True
        case Has(field):
            return lookup(field) is not None
        case Like(field, pattern):
            text = lookup(field)
            return isinstance(text, str) and matches(pattern, text)
        case Membership(field, values):
            found = _value(lookup(field))
            return any(_equal(found, value) for value in values)
        case Comparison(field, "==", value):
            return _equal(_value(lookup(field)), value)
        case Comparison(field, "!=", value):
            return not _equal(_value(lookup(field)), value)
        case Comparison(field, order, value):
            found = _value(lookup(field))
            return _type(found) == _type(value) and _ORDER[order](found, value)


def _equal(first: Any, second: Any) -> bool:
    return _type(first) == _type(second) and bool(first == second)


def _value(found: Any) -> Any:
    """A value as the stores see it: whole numbers of more than 64 bits are doubles, infinite where none is as large."""
    if not isinstance(found, int) or isinstance(found, bool) or found in _INT64:
        return found
    try:
        return float(found)
    except OverflowError:
        return math.inf if found > 0 else -math.inf


def _type(value: Any) -> str:
    """JSON's type: true is not 1, a number is one type."""
    if isinstance(value, Now):
        raise TypeError("an expression with now is bound before it is evaluated")
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    return type(value).__name__
