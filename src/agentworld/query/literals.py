"""The values that fields are compared with: read, and checked against the field's kind."""

from __future__ import annotations

import math
import re

from agentworld.query.expression import FieldRef, Now, Value
from agentworld.query.lexer import Token, fault
from agentworld.query.times import read_moment

CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_WANTED = {
    "text": "a text in quotes",
    "number": "a number",
    "boolean": "true or false",
    "time": "a date, a time, now or seconds since the epoch",
}
_NOT_IN_NAMES = re.compile("[\\x00\\ud800-\\udfff]")
_INT64 = range(-(2**63), 2**63)


def read_literal(token: Token) -> Value:
    """The value of one token: text, number, true, false or null."""
    if token.kind == "text":
        return token.value
    if token.kind == "number":
        return _number(token)
    return CONSTANTS[token.text]


def checked(field: FieldRef, value: Value, token: Token, exact: bool) -> Value:
    """`value` as the field's conditions hold it; QueryError where the field does not compare with it.

    `exact`: compared for equality.
    """
    kind = field.field.kind
    if kind == "presence":
        raise fault(f"{field} compares with nothing,", token.position, f"Ask for it: has {field}")
    if value is None:
        return None
    if isinstance(value, Now) and kind != "time":
        raise fault(f"{field} is no time, but is compared with now,", token.position)
    match kind:
        case "time" if isinstance(value, str):
            return read_moment(token, exact)
        case "time" if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value) + 0.0  # Never -0.0.
        case "time" if isinstance(value, Now):
            return value
        case "text" if isinstance(value, str):
            return plain(field, value, token)
        case "number" if isinstance(value, (int, float)) and not isinstance(value, bool):
            return value
        case "boolean" if isinstance(value, bool):
            return value
        case "json":
            return value
    raise fault(f"{field} compares with {_WANTED[kind]}, not with {token.text!r},", token.position)


def plain(field: FieldRef, text: str, token: Token) -> str:
    """The text, or QueryError where no name holds one of its characters; values inside JSON hold any."""
    found = _NOT_IN_NAMES.search(text) if field.field.kind == "text" else None
    if found is not None:
        raise fault(f"{field} never holds U+{ord(found.group()):04X}, which the text has", token.position)
    return text


def _number(token: Token) -> int | float:
    number = float(token.text)
    if not math.isfinite(number):
        raise fault(f"{token.text} is too large a number", token.position)
    # Whole numbers of 64 bits are exact, everything else is a double, as in the stores.
    if token.text.lstrip("-").isdigit() and int(token.text) in _INT64:
        return int(token.text)
    return number
