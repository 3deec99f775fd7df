"""Where in the agent's last message the answer stands, and the plain comparisons."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

from agentworld.errors import ConfigError

AnswerPlace = Literal["whole", "after_answer"]
Comparison = Callable[[str, Any], float]

_MARK = re.compile(r"answer:[ \t]*", re.IGNORECASE)


def extract_answer(text: str | None, place: AnswerPlace = "whole") -> str | None:
    """The answer in `text`, without surrounding white space; None where there is none.

    whole: all of it. after_answer: what follows the last "Answer:" on its line, in any case of letters.
    """
    if text is None:
        return None
    if place == "whole":
        return text.strip() or None
    marks = list(_MARK.finditer(text))
    if not marks:
        return None
    return text[marks[-1].end() :].partition("\n")[0].strip() or None


def exact(answer: str, reference: Any) -> float:
    """1 where answer and reference are the same text but for surrounding white space."""
    return float(answer.strip() == str(reference).strip())


def contains(answer: str, reference: Any) -> float:
    """1 where the reference occurs in the answer, in any case of letters."""
    return float(str(reference).strip().casefold() in answer.casefold())


def numeric(answer: str, reference: Any) -> float:
    """1 where both are the same number; commas between digits, a sign and trailing zeros do not matter."""
    try:
        values = [Decimal(str(text).replace(",", "").strip()) for text in (answer, reference)]
    except InvalidOperation:
        return 0.0
    return float(all(value.is_finite() for value in values) and values[0] == values[1])


COMPARISONS: dict[str, Comparison] = {"exact": exact, "contains": contains, "numeric": numeric}


def comparison(name: str, path: str | None = None) -> Comparison:
    """The comparison called `name`: exact, contains, numeric, or a function of yours as "module:function".

    A function is called with the answer and the reference and returns a number from 0 to 1 (or a bool).
    """
    if name in COMPARISONS:
        return COMPARISONS[name]
    module, colon, function = name.partition(":")
    known = f'Use {", ".join(COMPARISONS)} or "module:function"'
    if not colon:
        raise ConfigError(f"no checker is called {name!r}", path=path, hint=known)
    try:
        found = getattr(importlib.import_module(module), function)
    except ImportError as error:
        raise ConfigError(
            f"the module of checker {name!r} cannot be imported: {error}", path=path, hint=known
        ) from None
    except AttributeError:
        raise ConfigError(f"module {module} has no {function!r}", path=path, hint=known) from None
    if not callable(found):
        raise ConfigError(f"checker {name!r} is no function", path=path, hint=known)

    def call(answer: str, reference: Any) -> float:
        value = float(found(answer, reference))
        if not (math.isfinite(value) and 0.0 <= value <= 1.0):
            raise ConfigError(f"checker {name!r} returned {value}", path=path, hint="Return a number from 0 to 1")
        return value

    return call
