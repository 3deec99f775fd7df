"""Comparing numbers exactly: whole numbers of 64 bits as such, all others as doubles, on every engine.

PostgreSQL would make a double of both sides, which has 53 bits, so the literal is brought to the type of the value: a
whole number is below 2.5 where it is below 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Float, and_, false, func, literal, or_

from agentworld.pool.schema import Whole
from agentworld.query.expression import Operator

Condition = ColumnElement[bool]
Number = int | float
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
_INT64 = range(_LOWEST, _HIGHEST + 1)


@dataclass(frozen=True)
class Numeric:
    """A number of a row: a whole number, a double, or one of the two, the other being null.

    `column`: it is a plain column, whose conditions can use an index.
    """

    whole: ColumnElement[Any] | None = None
    real: ColumnElement[Any] | None = None
    column: bool = False

    def is_null(self) -> Condition:
        """Whether there is no number."""
        return and_(*(part.is_(None) for part in (self.whole, self.real) if part is not None))

    def compared(self, operator: Operator, value: Number) -> Condition:
        """`number operator value`, false where there is no number."""
        found = []
        if self.whole is not None:
            found.append(self._certain(self.whole, _whole_condition(self.whole, operator, value)))
        if self.real is not None:
            found.append(self._certain(self.real, _real_condition(self.real, operator, value)))
        return or_(false(), *found)

    def is_one_of(self, values: Sequence[Number]) -> Condition:
        """Whether the number equals one of `values`."""
        found = []
        whole = list(dict.fromkeys(math.floor(v) for v in values if v == math.floor(v) and math.floor(v) in _INT64))
        if self.whole is not None and whole:
            found.append(self._certain(self.whole, self.whole.in_([literal(value, Whole) for value in whole])))
        real = list(dict.fromkeys(float(v) for v in values if float(v) == v))
        if self.real is not None and real:
            found.append(self._certain(self.real, self.real.in_([literal(value, Float) for value in real])))
        return or_(false(), *found)

    def _certain(self, part: ColumnElement[Any], condition: Condition) -> Condition:
        # True or false, never null. What an index finds must stand alone; what is computed is computed once.
        return and_(part.is_not(None), condition) if self.column else func.coalesce(condition, false())


def _whole_condition(part: ColumnElement[Any], operator: Operator, value: Number) -> Condition:
    match operator:
        case "==":
            bound = math.floor(value)  # A range has no quick answer for a double.
            return part == literal(bound, Whole) if bound == value and bound in _INT64 else false()
        case "<" | ">=":
            bound = math.ceil(value)
        case _:
            bound = math.floor(value)
    if bound not in _INT64:
        return part.is_not(None) if (bound > 0) == (operator in ("<", "<=")) else false()
    return part.op(operator, is_comparison=True)(literal(bound, Whole))


def _real_condition(part: ColumnElement[Any], operator: Operator, value: Number) -> Condition:
    nearest = float(value)
    if nearest != value:  # A whole number between two doubles.
        if operator == "==":
            return false()
        below = operator in ("<", "<=")
        if (nearest > value) == below:
            nearest = math.nextafter(nearest, -math.inf if below else math.inf)
        operator = "<=" if below else ">="
    if operator == "==":
        return part == literal(nearest, Float)
    return part.op(operator, is_comparison=True)(literal(nearest, Float))
