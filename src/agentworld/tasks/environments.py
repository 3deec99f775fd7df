"""The environments of the ready task sets: one tool each, no state, so that reset and close have nothing to do."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from agentworld.engines.builtin.pocket_tokenizer import CALCULATOR_TOOL, CONVERTER_TOOL
from agentworld.records import Tool
from agentworld.tasks.base import Observation

_SUM = re.compile(r"(-?\d{1,12}) ?([+-]) ?(-?\d{1,12})")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
LONGEST_NUMBER = 64


class ToolEnvironment(ABC):
    """One tool without state. A subclass sets `tool` and implements `answer`."""

    tool: Tool

    @property
    def tools(self) -> Sequence[Tool]:
        """The one tool."""
        return [self.tool]

    def reset(self) -> None:  # noqa: B027  # A tool without state has nothing to reset.
        """There is no state."""

    def close(self) -> None:  # noqa: B027  # Nor to free.
        """There is nothing to free."""

    def step(self, name: str, arguments: str) -> Observation:
        """Run the tool; a wrong name or wrong arguments are said in words."""
        if name != self.tool["function"]["name"]:
            return Observation(f"error: there is no tool {name[:40]}")
        try:
            given = json.loads(arguments) if arguments else {}
        except ValueError:
            return Observation("error: the arguments are not JSON")
        if not isinstance(given, dict):
            return Observation("error: the arguments are not an object")
        return Observation(self.answer(given))

    @abstractmethod
    def answer(self, given: Mapping[str, Any]) -> str:
        """What the tool says to these arguments."""


class Calculator(ToolEnvironment):
    """Adds or subtracts two whole numbers; longer sums take several calls."""

    tool = CALCULATOR_TOOL

    def answer(self, given: Mapping[str, Any]) -> str:
        """`{"expression": "12 + 30"}` -> "42"."""
        expression = given.get("expression")
        parts = _SUM.fullmatch(expression.strip()) if isinstance(expression, str) else None
        if parts is None:
            return "error: expected two whole numbers with one operator between them"
        left, operator, right = int(parts[1]), parts[2], int(parts[3])
        return str(left + right if operator == "+" else left - right)


class Converter(ToolEnvironment):
    """Writes a number of one base in another base."""

    tool = CONVERTER_TOOL

    def answer(self, given: Mapping[str, Any]) -> str:
        """`{"number": "ff", "source": 16, "target": 10}` -> "255"."""
        number, source, target = given.get("number"), given.get("source"), given.get("target")
        if not isinstance(number, str) or type(source) is not int or type(target) is not int:
            return "error: expected number as text, source and target as whole numbers"
        if not (2 <= source <= 36 and 2 <= target <= 36):
            return "error: bases go from 2 to 36"
        digits = [_DIGITS.find(character) for character in number]
        if not 1 <= len(digits) <= LONGEST_NUMBER or not all(0 <= digit < source for digit in digits):
            return "error: that is no number of this base"
        value = 0
        for digit in digits:
            value = value * source + digit
        return in_base(value, target)


def in_base(value: int, base: int) -> str:
    """A number from 0 on in `base` (2 to 36), digits above 9 as lower-case letters."""
    written = ""
    while True:
        value, digit = divmod(value, base)
        written = _DIGITS[digit] + written
        if not value:
            return written
