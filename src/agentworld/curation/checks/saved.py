"""The state of checks over a pool as bytes: a version, then MessagePack."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from agentworld.errors import InvalidRequestError

_S = TypeVar("_S", bound=msgspec.Struct)


class StateError(InvalidRequestError):
    """A state of a check that this version cannot go on from: it is made anew by running over everything again."""

    code = "invalid_check_state"


def pack(name: str, state: msgspec.Struct) -> bytes:
    """The state with the name of the check and its layout."""
    return msgspec.msgpack.encode((name, state))


def unpack(name: str, data: bytes, kind: type[_S]) -> _S:
    """The state; StateError where it is not this check's, or damaged."""
    try:
        found: tuple[str, Any] = msgspec.msgpack.decode(data, type=tuple[str, msgspec.Raw])
        if found[0] == name:
            return msgspec.msgpack.decode(found[1], type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    raise StateError(f"this is no state of {name}", path="state", hint="Run the checks over everything again")
