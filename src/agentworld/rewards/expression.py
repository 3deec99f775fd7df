"""A reward as a formula over a trajectory's fields, such as `exact(answer, reference) - 0.01 * n_steps`.

The text is parsed as Python's expression grammar and only the kinds of nodes below are walked; nothing is ever run by
Python itself. There are no attributes, subscripts, powers or loops, so a formula takes time linear in its length.
"""

from __future__ import annotations

import ast
import difflib
import math
import operator
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, ClassVar

from agentworld.errors import ConfigError, InvalidRequestError
from agentworld.records import BatchTrajectory
from agentworld.rewards.answers import COMPARISONS, extract_answer
from agentworld.rewards.protocol import EvaluatorKind, Name, Verdict, last_answer

FIELDS: dict[str, str] = {
    "answer": "text of the last reply, '' where there is none",
    "reference": "the task's reference, as text",
    "n_steps": "sampled replies",
    "prompt_tokens": "prompt tokens of all steps together",
    "response_tokens": "sampled tokens of all steps together",
    "finished": "whether the run ended by itself",
    "truncated": "whether it used up its turns, tokens or time",
    "failed": "whether it failed",
    "reward": "the primary reward that is set already, 0 where there is none",
}
"""Names that a formula may use, and what they stand for."""

_Number = int | float
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_ORDER: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}
FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    **{name: (2, compare) for name, compare in COMPARISONS.items()},
    "after_answer": (1, lambda text: extract_answer(text, "after_answer") or ""),
    "length": (1, len),
    "lower": (1, lambda text: text.lower()),
    "absolute": (1, abs),
    "minimum": (2, min),
    "maximum": (2, max),
}
"""Functions by name: how many arguments, and the function."""


class ExpressionReward(EvaluatorKind, frozen=True, kw_only=True):
    """Evaluates a formula; ConfigError where it cannot be read."""

    expression: str
    name: Name = "expression"
    revision: ClassVar[int] = 2

    def __post_init__(self) -> None:
        self._check(self._tree)

    @property
    def needs(self) -> tuple[str, ...]:
        """The primary reward, where the formula reads it."""
        names = {node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name)}
        return ("reward",) if "reward" in names else ()

    def evaluate(self, subject: BatchTrajectory) -> Verdict:
        """The formula's value."""
        return Verdict({self.reward: self.value(fields_of(subject))})

    @cached_property
    def _tree(self) -> ast.expr:
        try:
            return ast.parse(self.expression.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError) as error:
            column = getattr(error, "offset", None)
            said = getattr(error, "msg", None)
            where = (f" at column {column}" if column else "") + (f": {said}" if said else "")
            raise ConfigError(f"the reward {self.expression!r} cannot be read{where}", path="expression") from None

    def value(self, fields: Mapping[str, Any]) -> float:
        """The formula's value over these fields; InvalidRequestError where it is no finite number."""
        try:
            result = self._walk(self._tree, fields)
        except (TypeError, ZeroDivisionError, OverflowError, AttributeError) as error:
            raise InvalidRequestError(f"the reward {self.expression!r} has no value here: {error}") from None
        if not isinstance(result, bool | int | float) or not math.isfinite(result):
            raise InvalidRequestError(f"the reward {self.expression!r} is {result!r}, no finite number")
        return float(result)

    def _check(self, node: ast.expr) -> None:
        """Refuse everything that `_walk` does not know, with its column and the nearest name."""
        match node:
            case ast.Constant(value=bool() | int() | float() | str()):
                parts: list[ast.expr] = []
            case ast.Name(id=name):
                if name not in FIELDS:
                    raise self._error(node, f"there is no field {name!r}", name, FIELDS)
                parts = []
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                parts = [left, right]
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Not(), operand=operand):
                parts = [operand]
            case ast.BoolOp(values=values):
                parts = values
            case ast.Compare(left=left, ops=ops, comparators=comparators) if all(type(op) in _ORDER for op in ops):
                parts = [left, *comparators]
            case ast.IfExp(test=test, body=body, orelse=orelse):
                parts = [test, body, orelse]
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
                if name not in FUNCTIONS:
                    raise self._error(node, f"there is no function {name!r}", name, FUNCTIONS)
                if len(arguments) != FUNCTIONS[name][0]:
                    raise self._error(node, f"{name} takes {FUNCTIONS[name][0]} arguments, not {len(arguments)}")
                parts = arguments
            case _:
                raise self._error(node, "this is no part of a reward formula")
        for part in parts:
            self._check(part)

    def _error(self, node: ast.expr, what: str, name: str = "", known: Mapping[str, Any] | None = None) -> ConfigError:
        close = difflib.get_close_matches(name, known or (), 1)
        hint = f"Did you mean {close[0]}?" if close else f"Known: {', '.join(known)}" if known else None
        return ConfigError(
            f"{what}, at column {node.col_offset + 1} of {self.expression!r}", path="expression", hint=hint
        )

    def _walk(self, node: ast.expr, fields: Mapping[str, Any]) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return fields[name]
            case ast.BinOp(left=left, op=op, right=right):
                pair = self._walk(left, fields), self._walk(right, fields)
                if not all(isinstance(value, _Number) for value in pair):
                    raise TypeError("arithmetic takes numbers")
                return _ARITHMETIC[type(op)](*pair)
            case ast.UnaryOp(op=op, operand=operand):
                value = self._walk(operand, fields)
                return not value if isinstance(op, ast.Not) else -value if isinstance(op, ast.USub) else +value
            case ast.BoolOp(op=op, values=values):
                every = isinstance(op, ast.And)
                results = (bool(self._walk(value, fields)) for value in values)
                return all(results) if every else any(results)
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                known = [self._walk(each, fields) for each in (left, *comparators)]
                return all(_ORDER[type(op)](known[i], known[i + 1]) for i, op in enumerate(ops))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._walk(body if self._walk(test, fields) else orelse, fields)
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return FUNCTIONS[name][1](*(self._walk(each, fields) for each in arguments))
        raise TypeError(f"{type(node).__name__} was not refused")


def fields_of(run: BatchTrajectory) -> dict[str, Any]:
    """The values of `FIELDS` for one trajectory."""
    trajectory = run.trajectory
    reference = (trajectory.task or {}).get("reference")
    return {
        "answer": last_answer(run) or "",
        "reference": "" if reference is None else str(reference),
        "n_steps": trajectory.step_count or len(run.steps),
        "prompt_tokens": trajectory.prompt_tokens,
        "response_tokens": trajectory.response_tokens,
        "finished": trajectory.status == "finished",
        "truncated": trajectory.status == "truncated",
        "failed": trajectory.status == "failed",
        "reward": trajectory.reward or 0.0,
    }
