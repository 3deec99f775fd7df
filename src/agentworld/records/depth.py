"""What free JSON may hold, so that what was stored can always be read back, whatever reads it."""

from __future__ import annotations

import math
from typing import Any

from agentworld.errors import InvalidRequestError

MAX_DEPTH = 100
Container = dict[Any, Any] | list[Any] | tuple[Any, ...]
_CONTAINERS = (dict, list, tuple)


def check_depth(value: object, path: str) -> None:
    """InvalidRequestError where `value`, free JSON at `path`, nests objects and lists more than 100 deep, or holds a
    number that JSON has no word for (NaN, infinity).

    A text or number has depth 0, `{}` has 1, `{"a": []}` has 2. The walk keeps its own stack, so no depth can exhaust
    Python's; it goes depth first, so that a value that contains itself ends it too.
    """
    if not isinstance(value, _CONTAINERS):
        if isinstance(value, float):
            _check_finite(value, path)
        return
    waiting: list[tuple[Container, int]] = [(value, 1)]
    while waiting:
        container, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise InvalidRequestError(
                f"objects and lists nest more than {MAX_DEPTH} deep",
                path=path,
                hint="Flatten the value, or send the deep part as one text",
            )
        depth += 1
        # A plain loop: this runs over the tools of every step.
        for child in container.values() if isinstance(container, dict) else container:
            if child.__class__ is str:
                continue
            if isinstance(child, _CONTAINERS):
                waiting.append((child, depth))
            elif isinstance(child, float):
                _check_finite(child, path)


def _check_finite(number: float, path: str) -> None:
    if not math.isfinite(number):
        raise InvalidRequestError(f"{number} is no number that JSON has", path=path, hint="Send null, or a text")
