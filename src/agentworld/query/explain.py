"""What a query asks for and how it can be found, without looking at a store."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agentworld.query.expression import (
    Comparison,
    Conjunction,
    Disjunction,
    Expression,
    FieldRef,
    Flag,
    Like,
    Membership,
    conditions,
)
from agentworld.query.fields import Subject
from agentworld.query.patterns import prefix
from agentworld.query.printer import printed


class Explanation(msgspec.Struct, kw_only=True, frozen=True):
    """How a `where` expression is understood.

    `expression`: its canonical text. `fields`: what it reads, each once. `indexed`: the conditions that all have to
    hold and that an index finds rows by. `scanned`: the other conditions, which are looked at row by row. `scans`:
    whether no condition is indexed, so that every row that the other filters leave is looked at. `plan`: how the
    store's engine goes about it, one line each; filled in by the store.
    """

    subject: Subject
    expression: str
    fields: list[str]
    indexed: list[str]
    scanned: list[str]
    scans: bool
    plan: list[str] = []


def explain(expression: Expression, subject: Subject) -> Explanation:
    """The explanation of a parsed expression over `subject`."""
    parts = expression.items if isinstance(expression, Conjunction) else (expression,)
    found = [uses_index(part, subject) or _narrows_policy(part, parts, subject) for part in parts]
    indexed = [printed(part) for part, by_index in zip(parts, found, strict=True) if by_index]
    return Explanation(
        subject=subject,
        expression=printed(expression),
        fields=list(dict.fromkeys(str(condition.field) for condition in conditions(expression))),
        indexed=indexed,
        scanned=[printed(part) for part, by_index in zip(parts, found, strict=True) if not by_index],
        scans=not indexed,
    )


def uses_index(expression: Expression, subject: Subject) -> bool:
    """Whether an index finds the rows for which the expression holds."""
    match expression:
        case Conjunction(items):
            return any(uses_index(item, subject) for item in items)
        case Disjunction(items):
            # Times are found in another way than all else, which leaves nothing for a choice of both.
            timed = {leaf.field.field.name == "created_at" for leaf in conditions(expression)}
            return len(timed) == 1 and all(uses_index(item, subject) for item in items)
        case Flag(field):
            return _indexed(field, subject)
        case Comparison(field, operator, value):
            return _indexed(field, subject) and operator != "!=" and value is not None and value is not False
        case Membership(field, values):
            return _indexed(field, subject) and all(value is not None and value is not False for value in values)
        case Like(field, pattern):
            return _indexed(field, subject) and prefix(pattern) != ""
        case _:
            return False


def _narrows_policy(part: Expression, beside: Sequence[Expression], subject: Subject) -> bool:
    """Whether the condition narrows the index of policies: on the run with its model, or on the version with both."""
    named = {
        item.field.field.name
        for item in beside
        if isinstance(item, Comparison) and item.operator == "==" and isinstance(item.value, str)
    }
    match part:
        case Comparison(field, operator, value) if operator != "!=" and value is not None:
            name = field.field.name
        case Membership(field, values) if None not in values:
            name = field.field.name
        case _:
            return False
    outer = {"policy.run": {"policy.model"}, "policy.version": {"policy.model", "policy.run"}}.get(name)
    return outer is not None and outer <= named and subject == "trajectories"


def _indexed(field: FieldRef, subject: Subject) -> bool:
    return not field.path and subject in field.field.indexed
