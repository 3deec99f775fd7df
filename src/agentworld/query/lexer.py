"""Text to tokens, each with its position."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from agentworld.errors import QueryError

MAX_LENGTH = 4096
TokenKind = Literal["name", "text", "number", "operator", "end"]

_PATTERN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<number>-?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_][A-Za-z0-9_-]*)*)
  | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
  | (?P<operator>==|!=|<=|>=|<|>|\(|\)|,)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}


class Token(NamedTuple):
    """One token; `text` is the value of a string without its quotes, otherwise the source text."""

    kind: TokenKind
    text: str
    position: int


def tokenize(source: str) -> list[Token]:
    """The tokens of `source`, an end token last; QueryError names the position of what is no token."""
    if len(source) > MAX_LENGTH:
        raise QueryError(f"the expression has {len(source)} characters, at most {MAX_LENGTH} are taken", path="where")
    tokens = []
    position = 0
    while position < len(source):
        found = _PATTERN.match(source, position)
        if found is None:
            raise _no_token(source, position)
        kind, text = str(found.lastgroup), found.group()
        if kind == "text":
            tokens.append(Token("text", _ESCAPE.sub(lambda m: _ESCAPED.get(m[1], m[1]), text[1:-1]), position))
        elif kind == "number" and source[found.end() : found.end() + 1].isalpha():
            raise fault("a number runs into letters", found.end(), "Put a space between them")
        elif kind in ("number", "name", "operator"):
            tokens.append(Token(kind, text, position))  # type: ignore[arg-type]  # Narrowed by the line above.
        position = found.end()
    tokens.append(Token("end", "", len(source)))
    return tokens


def fault(message: str, position: int, hint: str | None = None) -> QueryError:
    """A QueryError at `position` (0-based) of the expression."""
    return QueryError(f"{message} at position {position} of the where expression", path="where", hint=hint)


def _no_token(source: str, position: int) -> QueryError:
    character = source[position]
    if character in "'\"":
        return fault("a string that does not end begins", position, f"Close it with {character}")
    hints = {"=": "Compare with ==", "!": "Use != or not", "&": "Use and", "|": "Use or"}
    return fault(f"unexpected {character!r}", position, hints.get(character))
