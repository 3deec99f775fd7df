"""Trees with their `now` or their texts replaced: what a store does once for each query."""

from __future__ import annotations

from collections.abc import Callable

from agentworld.query.expression import (
    Comparison,
    Conjunction,
    Disjunction,
    Expression,
    Like,
    Membership,
    Not,
    Now,
    Value,
)
from agentworld.query.fields import Kind


def bind(expression: Expression, now: float) -> Expression:
    """The tree with every `now` as seconds since the epoch; `now`: the moment of the query."""
    return _replaced(expression, lambda value: now + value.offset if isinstance(value, Now) else value, str)


def with_texts(expression: Expression, text: Callable[[str], str]) -> Expression:
    """The tree with other texts and patterns where they are compared with values inside JSON; keys stay.

    For stores that write some characters in another way, which only such values hold.
    """
    return _replaced(expression, lambda value: text(value) if isinstance(value, str) else value, text, only="json")


def _replaced(
    expression: Expression,
    value: Callable[[Value], Value],
    pattern: Callable[[str], str],
    only: Kind | None = None,
) -> Expression:
    match expression:
        case Conjunction(items):
            return Conjunction(tuple(_replaced(item, value, pattern, only) for item in items))
        case Disjunction(items):
            return Disjunction(tuple(_replaced(item, value, pattern, only) for item in items))
        case Not(item):
            return Not(_replaced(item, value, pattern, only))
        case Comparison() | Membership() | Like() if only not in (None, expression.field.field.kind):
            return expression
        case Comparison(field, operator, given):
            return Comparison(field, operator, value(given))
        case Membership(field, values):
            return Membership(field, tuple(map(value, values)))
        case Like(field, given):
            return Like(field, pattern(given))
        case _:
            return expression
