"""Text to tokens, each with its position."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from agentworld.errors import QueryError

MAX_LENGTH = 4096
TokenKind = Literal["name", "text", "number", "duration", "operator", "end"]

_PATTERN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<duration>(?:[0-9]+\.[0-9]+|[0-9]+)[smhdw](?![A-Za-z0-9_.]))
  | (?P<number>-?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]+)?)
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*(?:\.(?:[A-Za-z0-9_][A-Za-z0-9_-]*|"[^"]*"|'[^']*'))*)
  | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
  | (?P<operator>==|!=|<=|>=|<|>|\(|\)|,|\+|-)
    """,
    re.VERBOSE | re.DOTALL,
)
_PIECE = re.compile(r"""\.?(?:([A-Za-z0-9_][A-Za-z0-9_-]*)|"([^"]*)"|'([^']*)')""")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}


class Token(NamedTuple):
    """One token as it is written."""

    kind: TokenKind
    text: str
    position: int

    @property
    def value(self) -> str:
        """What a text in quotes stands for."""
        return _ESCAPE.sub(lambda found: ESCAPED.get(found[1], found[1]), self.text[1:-1])

    @property
    def pieces(self) -> tuple[str, ...]:
        """A name cut at its dots, keys in quotes without them."""
        return tuple(
            next(piece for piece in found.groups() if piece is not None) for found in _PIECE.finditer(self.text)
        )


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
        kind, text, end = str(found.lastgroup), found.group(), found.end()
        if kind == "number" and source[end : end + 1].isalpha():
            if not text.startswith("-"):
                raise fault("a number runs into letters", end, "Put a space between them")
            kind, text, end = "operator", "-", position + 1  # As in `now -2h`.
        if kind == "name":
            _check_keys(text, position)
        if kind != "space":
            tokens.append(Token(kind, text, position))  # type: ignore[arg-type]  # The groups are the kinds.
        position = end
    tokens.append(Token("end", "", len(source)))
    return tokens


def fault(message: str, position: int, hint: str | None = None) -> QueryError:
    """A QueryError at `position` (0-based) of the expression."""
    return QueryError(f"{message} at position {position} of the where expression", path="where", hint=hint)


def _check_keys(text: str, position: int) -> None:
    # JSON escapes these, and SQLite looks for a key as it stands in the JSON text.
    for key in _PIECE.finditer(text):
        for offset, character in enumerate(key[2] or key[3] or ""):
            if character in '"\\' or ord(character) < 0x20:
                where = position + key.start(key.lastindex or 0) + offset
                raise fault(f"{character!r} in a key", where, 'Keys hold no ", no backslash and no control character')


def _no_token(source: str, position: int) -> QueryError:
    character = source[position]
    if character in "'\"":
        return fault("a string that does not end begins", position, f"Close it with {character}")
    hints = {"=": "Compare with ==", "!": "Use != or not", "&": "Use and", "|": "Use or"}
    return fault(f"unexpected {character!r}", position, hints.get(character))
