"""Where in the agent's last message the answer stands, and the plain comparisons."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable
from typing import Any, Literal

from agentworld.errors import ConfigError
from agentworld.rewards.numbers import last_number, same_number

AnswerPlace = Literal["whole", "after_answer", "boxed", "tag", "code", "last_number"]
Comparison = Callable[[str, Any], float]

_MARK = re.compile(r"answer:[ \t]*", re.IGNORECASE)
_FENCE = re.compile(r"^[ \t]*(```+|~~~+)", re.MULTILINE)


def extract_answer(text: str | None, place: AnswerPlace = "whole") -> str | None:
    """The answer in `text`, without surrounding white space; None where there is none.

    whole: all of it. after_answer: what follows the last "Answer:" on its line, in any case of letters. boxed: inside
    the last `\\boxed{}`. tag: inside the last `<answer></answer>`. code: the last fenced block. last_number: the last
    number in digits, such as 1,000.5, 1.5e-4 or 5%. Each takes time linear in the text.
    """
    if text is None:
        return None
    return (_PLACES[place](text) or "").strip() or None


def _after_answer(text: str) -> str | None:
    marks = list(_MARK.finditer(text))
    return text[marks[-1].end() :].partition("\n")[0] if marks else None


def _boxed(text: str) -> str | None:
    """Inside the last `\\boxed{` whose brace is closed; braces within are counted."""
    end = len(text)
    while (start := text.rfind("\\boxed{", 0, end)) >= 0:
        depth = 0
        for place in range(start + len("\\boxed"), end):
            depth += {"{": 1, "}": -1}.get(text[place], 0)
            if depth == 0:
                return text[start + len("\\boxed{") : place]
        end = start
    return None


def _tag(text: str) -> str | None:
    _, opened, rest = text.rpartition("<answer>")
    inside, closed, _ = rest.partition("</answer>")
    return inside if opened and closed else None


def _code(text: str) -> str | None:
    """The last fenced block that is closed, without the line of its fence."""
    found: str | None = None
    opened: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opened is None:
            opened = fence
        elif fence[1].startswith(opened[1]):
            found = text[opened.end() : fence.start()].partition("\n")[2]
            opened = None
    return found


_PLACES: dict[str, Callable[[str], str | None]] = {
    "whole": lambda text: text,
    "after_answer": _after_answer,
    "boxed": _boxed,
    "tag": _tag,
    "code": _code,
    "last_number": last_number,
}


def exact(answer: str, reference: Any) -> float:
    """1 where answer and reference are the same text but for surrounding white space."""
    return float(answer.strip() == str(reference).strip())


def contains(answer: str, reference: Any) -> float:
    """1 where the reference occurs in the answer, in any case of letters."""
    return float(str(reference).strip().casefold() in answer.casefold())


def numeric(answer: str, reference: Any) -> float:
    """1 where both are the same number, in the notations that the evaluator `numeric` reads."""
    return float(same_number(answer, reference))


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
