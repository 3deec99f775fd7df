"""Trees with their `now` and their texts replaced: what a store does once for each query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from agentworld.query.expression import (
    Comparison,
    Conjunction,
    Disjunction,
    Expression,
    FieldRef,
    Like,
    Membership,
    Not,
    Now,
    Value,
)


def bind(expression: Expression, now: float, text: Callable[[str], str] | None = None) -> Expression:
    """The tree with every `now` as seconds since the epoch; `now`: the moment of the query.

    `text` maps every text, pattern and key, where a store writes some characters in another way.
    """

    def value(given: Value) -> Value:
        if isinstance(given, Now):
            return now + given.offset
        return text(given) if text is not None and isinstance(given, str) else given

    def field(given: FieldRef) -> FieldRef:
        return given if text is None or not given.path else replace(given, path=tuple(map(text, given.path)))

    def bound(item: Expression) -> Expression:
        match item:
            case Conjunction(items):
                return Conjunction(tuple(map(bound, items)))
            case Disjunction(items):
                return Disjunction(tuple(map(bound, items)))
            case Not(inner):
                return Not(bound(inner))
            case Comparison(reference, operator, given):
                return Comparison(field(reference), operator, value(given))
            case Membership(reference, values):
                return Membership(field(reference), tuple(map(value, values)))
            case Like(reference, pattern):
                return Like(field(reference), pattern if text is None else text(pattern))
            case _:
                return replace(item, field=field(item.field))

    return bound(expression)
