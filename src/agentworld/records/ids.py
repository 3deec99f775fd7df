"""Identifiers: time-ordered for rows, digests for content."""

from __future__ import annotations

import hashlib
import os
import re
import struct
import time

from agentworld.errors import InvalidRequestError

DIGEST_SIZE = 16
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_PLACES = (30, 20, 10, 0)  # of two digits each in five bytes, the first one first
_RANDOM_BYTES = 10
# Asked for together, as each time lets go of the interpreter's lock.
_AHEAD = 64
_random: list[bytes] = []
_latest = (0, "0" * 10)
"""A time in milliseconds, and how it is written."""
# Copied for each digest, as making one with its settings takes longer than hashing what is short.
_unbegun = hashlib.blake2b(digest_size=DIGEST_SIZE)
# Of more bytes the library lets go of the interpreter's lock, and waits for it longer than hashing takes.
_AT_ONCE = 2047
_LONG = 64 * 1024  # worth the wait
_LENGTH = struct.Struct(">Q").pack
MAX_NAME = 256  # characters; two names of four bytes a character fit into the key of an index on every engine
_NOT_IN_NAMES = re.compile("[\x00\ud800-\udfff]")
_MAX_ID = 128
_SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@~-]{0,127}")
# Ids that were found good; each of a trajectory's steps names it again, and the step before.
_KNOWN_IDS = 8192
_known_ids: set[str] = set()


def new_id(prefix: str) -> str:
    """`prefix_` and 26 characters: 48 bits of milliseconds, then 80 random bits, so that ids sort by time."""
    global _latest
    known, text = _latest
    now = time.time_ns() // 1_000_000
    if now != known:
        text = "".join([_PAIRS[now >> place & 1023] for place in (40, *_PLACES)])
        _latest = now, text
    data = _some_random()
    # Each half is a number that the interpreter shifts at once.
    high, low = int.from_bytes(data[:5], "big"), int.from_bytes(data[5:], "big")
    digits = [_PAIRS[high >> place & 1023] for place in _PLACES] + [_PAIRS[low >> place & 1023] for place in _PLACES]
    return f"{prefix}_{text}{''.join(digits)}"


def _some_random() -> bytes:
    try:
        return _random.pop()  # No other thread gets the same.
    except IndexError:
        data = os.urandom(_RANDOM_BYTES * _AHEAD)
        _random.extend(
            data[begin : begin + _RANDOM_BYTES] for begin in range(0, len(data) - _RANDOM_BYTES, _RANDOM_BYTES)
        )
        return data[-_RANDOM_BYTES:]


os.register_at_fork(after_in_child=_random.clear)  # Else parent and child would give the same ids.


def check_id(value: str, path: str) -> str:
    """`value` if it may stand in a path and a key: 1 to 128 letters, digits and . _ : @ ~ -."""
    if value.__class__ is str and value in _known_ids:
        return value
    # Most are letters and digits with some signs between, which is seen sooner than the pattern is gone through.
    if (
        value.__class__ is str
        and len(value) <= _MAX_ID
        and value.isascii()
        and value.replace("_", "0").replace("-", "0").replace(".", "0").isalnum()
    ):
        good = value[0].isalnum()
    else:
        good = isinstance(value, str) and _SAFE_ID.fullmatch(value) is not None
    if not good:
        shown = repr(value[:40]) if isinstance(value, str) else f"a value of type {type(value).__name__}"
        raise InvalidRequestError(
            f"{shown} cannot be an id",
            path=path,
            hint="Use 1 to 128 letters, digits and . _ : @ ~ - and begin with a letter or digit",
        )
    if len(_known_ids) >= _KNOWN_IDS:
        _known_ids.clear()
    _known_ids.add(value)
    return value


def check_name(value: object, path: str) -> None:
    """InvalidRequestError where a name, such as that of an agent, a model or a channel, is no text, is longer than
    MAX_NAME characters, or holds U+0000 or a lone surrogate. Contents may.
    """
    if not isinstance(value, str):
        raise InvalidRequestError(f"this must be a text, not {type(value).__name__}", path=path)
    if len(value) > MAX_NAME:
        raise InvalidRequestError(
            f"a name of {len(value)} characters", path=path, hint=f"Use at most {MAX_NAME} characters"
        )
    if not value.isprintable() and (found := _NOT_IN_NAMES.search(value)) is not None:
        raise InvalidRequestError(
            f"a name cannot hold U+{ord(found.group()):04X}", path=path, hint="Leave the character out"
        )


def digest(*parts: bytes) -> bytes:
    """BLAKE2b-128 over the parts, each framed by its length so that no two lists of parts collide."""
    return framed_digest(framed(*parts))


def framed(*parts: bytes) -> bytes:
    """The parts as `digest` hashes them; what is joined of such is as the parts together."""
    return b"".join([_LENGTH(len(part)) + part for part in parts])


def framed_digest(data: bytes) -> bytes:
    """The digest of what `framed` made."""
    hashed = _unbegun.copy()
    if len(data) <= _AT_ONCE or len(data) > _LONG:
        hashed.update(data)
        return hashed.digest()
    left = memoryview(data)
    for begin in range(0, len(data), _AT_ONCE):
        hashed.update(left[begin : begin + _AT_ONCE])
    return hashed.digest()
