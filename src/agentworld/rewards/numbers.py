"""Numbers as people and models write them: which notations are read, and when two are the same."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any, NamedTuple

LONGEST = 500
"""Characters of a text that is still read as one number."""
# Commas stand between groups of digits only: 1,000 and 12,34,567; 1,5 is two numbers.
_DIGITS = r"(?:\d{1,3}(?:,\d{2,3})*,\d{3}(?!\d)|\d+)"
_PLAIN = rf"[-+−]?(?:{_DIGITS}(?:\.\d+)?|\.\d+)"
_IN_TEXT = re.compile(rf"{_PLAIN}(?:[eE][-+−]?\d+)?(?:[ \u00a0\u202f]?%)?")
# The exponent is bounded, as the exact value of 1e999999999 does not fit into memory.
_ALONE = re.compile(
    rf"[-+]?(?:{_DIGITS}(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{{1,4}}(?!\d))?(?:\s*/\s*{_DIGITS})?(?P<percent>\s*%)?"
)
# What may stand around a number without being another number: currencies before it, units and a full stop after it.
_BEFORE = re.compile(r"[\s$€£¥₹]*")
_AFTER = re.compile(r"(?:\D*[^\W\d_]\^?-?[23])?\D*")


class Written(NamedTuple):
    """A number as it is written: of 5%, 5 and that it is a percentage."""

    value: Fraction
    percent: bool

    def agrees(self, wanted: Written, tolerance: Fraction = Fraction(0), relative: Fraction = Fraction(0)) -> bool:
        """Whether it is the number `wanted`. Where one alone is a percentage, 5% is 0.05, and 5 with the unit left out.

        `tolerance`: how far apart they may be, in what `wanted` is written in; `relative`: as a share of it.
        """
        allowed = max(tolerance, relative * abs(wanted.value))
        meant = [self.value]
        if self.percent != wanted.percent:
            meant.append(self.value * 100 if wanted.percent else self.value / 100)
        return any(abs(each - wanted.value) <= allowed for each in meant)


def last_number(text: str) -> str | None:
    """The last number in `text` as it is written, with its sign, exponent and percent sign; None where there is none.

    Of a fraction it is what is below the line.
    """
    numbers = _IN_TEXT.findall(text)
    return numbers[-1] if numbers else None


def read_written(text: str) -> Written | None:
    """The one number in `text`, which holds nothing else but a currency before and a unit after it; None otherwise."""
    if len(text) > LONGEST:
        return None
    text = text.strip().replace("−", "-")
    start = _BEFORE.match(text)
    sign = 1
    rest = text[start.end() if start else 0 :]
    if rest[:1] == "-" and rest[1:2] in tuple("$€£¥₹"):
        sign, rest = -1, rest[2:]
    found = _ALONE.match(rest)
    if found is None or not _AFTER.fullmatch(rest[found.end() :]):
        return None
    percent = found["percent"]
    over, _, under = found[0].removesuffix(percent or "").replace(",", "").partition("/")
    try:
        value = sign * Fraction(over.strip()) / (Fraction(under.strip()) if under else 1)
    except (ValueError, ZeroDivisionError):
        return None
    return Written(value, percent is not None)


def read_number(text: str) -> Fraction | None:
    """As `read_written`, without the percent sign."""
    found = read_written(text)
    return None if found is None else found.value


def same_number(answer: str, reference: Any) -> bool:
    """Whether both are one number; no number is the same as another text."""
    said, wanted = read_written(answer), read_written(str(reference))
    return said is not None and wanted is not None and said.agrees(wanted)
