"""The expression tree: frozen, checked, with every field resolved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agentworld.query.fields import Field

Value = str | int | float | bool | None
Operator = Literal["==", "!=", "<", "<=", ">", ">="]


@dataclass(frozen=True, slots=True)
class FieldRef:
    """A field, with the key after its name where the field is a map (`label.quality`: field `label`, key `quality`)."""

    field: Field
    key: str | None = None

    def __str__(self) -> str:
        return self.field.name if self.key is None else f"{self.field.name}.{self.key}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """`field operator value`; `== null` is the test for absence."""

    field: FieldRef
    operator: Operator
    value: Value


@dataclass(frozen=True, slots=True)
class Membership:
    """`field in (values)`."""

    field: FieldRef
    values: tuple[Value, ...]


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
    """All of `items`."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Disjunction:
    """Any of `items`."""

    items: tuple[Expression, ...]


Expression = Comparison | Membership | Flag | Not | Conjunction | Disjunction
