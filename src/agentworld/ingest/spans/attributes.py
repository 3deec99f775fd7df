"""Attributes with numbered keys, such as `llm.tools.0.tool.json_schema`, as the lists and objects that they spell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MAX_DEPTH = 24


def under(attributes: Mapping[str, Any], prefix: str) -> Any:
    """What the keys under `prefix` (without its last dot) spell; None where there is none. A value that stands under
    the prefix itself comes first.
    """
    if attributes.get(prefix) is not None:
        return attributes[prefix]
    start = f"{prefix}."
    tree: dict[str, Any] = {}
    for key, value in attributes.items():
        if not key.startswith(start):
            continue
        names = key[len(start) :].split(".", _MAX_DEPTH)
        here = tree
        for name in names[:-1]:
            inner = here.get(name)
            if not isinstance(inner, dict):
                # A value under the same name keeps its place beside the deeper ones.
                inner = here[name] = {} if inner is None else {"": inner}
            here = inner
        if isinstance(here.get(names[-1]), dict):
            here[names[-1]][""] = value
        else:
            here[names[-1]] = value
    return listed(tree) if tree else None


def listed(tree: Any) -> Any:
    """Objects whose keys are all numbers as lists in their order; what is missing between them is left out."""
    if not isinstance(tree, dict):
        return tree
    if tree and all(name.isascii() and name.isdigit() and len(name) < 7 for name in tree):
        return [listed(tree[name]) for name in sorted(tree, key=int)]
    return {name: listed(value) for name, value in tree.items()}


def flattened(given: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """Objects within attributes as keys with dots, as spans have them; lists stay."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        if isinstance(value, Mapping) and value and depth < _MAX_DEPTH:
            found |= {f"{name}.{key}": inner for key, inner in flattened(value, depth + 1).items()}
        else:
            found[str(name)] = value
    return found


def first(attributes: Mapping[str, Any], *names: str) -> Any:
    """The first of these that is there and not empty."""
    return next((attributes[name] for name in names if attributes.get(name) not in (None, "", [], {})), None)
