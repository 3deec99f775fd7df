"""The expression tree: frozen, checked, with every field resolved."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from agentworld.query.fields import Field

Operator = Literal["==", "!=", "<", "<=", ">", ">="]
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class Now:
    """The moment of the query plus `offset` seconds; `bind` makes it a number."""

    offset: float = 0.0


Value = str | int | float | bool | None | Now


@dataclass(frozen=True, slots=True)
class FieldRef:
    """A field, with the keys after its name where the field is a map: `task.a.b` is the field `task` and `("a", "b")`.

    A map that is not nested (`reward`, `label`, `annotation`) has one key, dots included.
    """

    field: Field
    path: tuple[str, ...] = ()

    @property
    def key(self) -> str | None:
        """The key of a map that is not nested; None without one."""
        return ".".join(self.path) if self.path else None

    def __str__(self) -> str:
        if not self.path:
            return self.field.name
        pieces = self.path if self.field.nested else (self.key or "").split(".")
        return ".".join([self.field.name, *map(_written, pieces)])


@dataclass(frozen=True, slots=True)
class Comparison:
    """`field operator value`; `== null` is the test for absence. Values of times are seconds since the epoch."""

    field: FieldRef
    operator: Operator
    value: Value


@dataclass(frozen=True, slots=True)
class Membership:
    """`field in (values)`."""

    field: FieldRef
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Like:
    """`field like pattern`; the pattern is in the form of `agentworld.query.patterns`."""

    field: FieldRef
    pattern: str


@dataclass(frozen=True, slots=True)
class Has:
    """`has field`: there is a value, and it is not null."""

    field: FieldRef


@dataclass(frozen=True, slots=True)
class Flag:
    """A boolean field on its own."""

    field: FieldRef


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite of `item`."""

    item: Expression


@dataclass(frozen=True, slots=True)
class Conjunction:
    """All of `items`, of which none is a conjunction."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Disjunction:
    """Any of `items`, of which none is a disjunction."""

    items: tuple[Expression, ...]


Condition = Comparison | Membership | Like | Has | Flag
Expression = Condition | Not | Conjunction | Disjunction


def conditions(expression: Expression) -> list[Condition]:
    """The conditions of the tree, as they stand in it from left to right."""
    match expression:
        case Conjunction(items) | Disjunction(items):
            return [found for item in items for found in conditions(item)]
        case Not(item):
            return conditions(item)
        case _:
            return [expression]


def _written(key: str) -> str:
    return key if _PLAIN_KEY.fullmatch(key) else f'"{key}"'
