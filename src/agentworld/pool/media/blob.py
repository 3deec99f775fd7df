"""What a blob is: its bytes, the type that its sender gave it, and the digest that names it."""

from __future__ import annotations

import hashlib
import re

import msgspec

from agentworld.errors import InvalidRequestError, TooLargeError
from agentworld.records.ids import DIGEST_SIZE

MAX_BYTES = 64 * 1024 * 1024
_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,63}/[a-z0-9][a-z0-9!#$&^_.+-]{0,63}")
_DIGEST = re.compile(r"[0-9a-f]{32}")


class Medium(msgspec.Struct, frozen=True):
    """One blob; `digest` is the hex BLAKE2b-128 of `data`."""

    digest: str
    media_type: str
    data: bytes


def media_digest(data: bytes) -> bytes:
    """The 16 bytes that name a blob, in hex in messages."""
    return hashlib.blake2b(data, digest_size=DIGEST_SIZE).digest()


def check_medium(data: bytes, media_type: str) -> None:
    """TooLargeError over 64 MiB, InvalidRequestError where the type is none, such as `image/png` is one."""
    if not isinstance(data, bytes) or not data:
        raise InvalidRequestError("a medium has bytes", path="data")
    if len(data) > MAX_BYTES:
        raise TooLargeError(f"a medium has at most {MAX_BYTES} bytes, not {len(data)}", path="data")
    if not _TYPE.fullmatch(media_type):
        raise InvalidRequestError(
            f"{media_type[:80]!r} is no media type", path="media_type", hint="Name one such as image/png, lower case"
        )


def read_digest(text: str) -> bytes:
    """The digest that a hex text says; InvalidRequestError where it is none."""
    if not _DIGEST.fullmatch(text):
        raise InvalidRequestError(f"{text[:40]!r} is no digest of a medium", path="digest", hint="32 hex digits")
    return bytes.fromhex(text)
