r"""Patterns of `like`: `%` is any text, `_` is any one character, `\` takes the next character as it is.

Patterns are kept in one form, in which `\` stands only before `%`, `_` and `\`. Case counts.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from agentworld.query.lexer import ESCAPED, Token, fault

MAX_LENGTH = 1000
MAX_WILDCARDS = 20
_SPECIAL = "%_\\"


def read_pattern(token: Token) -> str:
    """The pattern of a text in quotes; QueryError where it is too long or has too many wildcards.

    The escapes of texts (`\\n`, `\\'`) hold here too, and a backslash is one escape for both: `'50\\%'` is 50%.
    """
    text = token.text[1:-1]
    if len(text) > MAX_LENGTH:
        raise fault(f"a pattern of {len(text)} characters", token.position, f"At most {MAX_LENGTH} are taken")
    pattern = []
    position = 0
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 1
            found = text[position]
            pattern.append("\\" + found if found in _SPECIAL else ESCAPED.get(found, found))
        else:
            pattern.append(character)
        position += 1
    found = "".join(pattern)
    if sum(wild and character == "%" for character, wild in pieces(found)) > MAX_WILDCARDS:
        raise fault("a pattern with too many %", token.position, f"At most {MAX_WILDCARDS} are taken")
    return found


def pieces(pattern: str) -> Iterator[tuple[str, bool]]:
    """Each character of the pattern, and whether it is a wildcard."""
    characters = iter(pattern)
    for character in characters:
        if character == "\\":
            yield next(characters), False
        else:
            yield character, character in "%_"


def matches(pattern: str, text: str) -> bool:
    """Whether the whole text fits the pattern, in time that grows with the product of their lengths at most."""
    first, *rest = _parts(pattern)
    if not rest:
        return first.fullmatch(text) is not None
    found = first.match(text)
    if found is None:
        return False
    # Between two `%` the earliest place is as good as any later one.
    position = found.end()
    for part in rest[:-1]:
        found = part.search(text, position)
        if found is None:
            return False
        position = found.end()
    last = rest[-1]
    begin = len(text) - _width(last)
    return begin >= position and last.fullmatch(text, begin) is not None


def prefix(pattern: str) -> str:
    """What every text that fits begins with."""
    found = []
    for character, wild in pieces(pattern):
        if wild:
            break
        found.append(character)
    return "".join(found)


def glob(pattern: str) -> str:
    """The pattern as SQLite's GLOB reads it, which minds the case, unlike its LIKE."""
    wildcards = {"%": "*", "_": "?"}
    return "".join(
        wildcards[character] if wild else f"[{character}]" if character in "*?[" else character
        for character, wild in pieces(pattern)
    )


@functools.lru_cache(maxsize=256)
def _parts(pattern: str) -> tuple[re.Pattern[str], ...]:
    parts = [""]
    for character, wild in pieces(pattern):
        if wild and character == "%":
            parts.append("")
        else:
            parts[-1] += "." if wild else re.escape(character)
    return tuple(re.compile(part, re.DOTALL) for part in parts)


@functools.lru_cache(maxsize=256)
def _width(part: re.Pattern[str]) -> int:
    return len(re.sub(r"\\(.)", r"\1", part.pattern, flags=re.DOTALL))
