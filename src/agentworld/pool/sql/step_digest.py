"""The digest of what a step said: what a duplicate is known by, and what a check can compute again.

Its first 16 bytes are over everything, also what the step's row does not keep as it was said. The 8 bytes after them
are over what is stored exactly: ids, mask, log-probabilities, messages and tools, by the digests of the forests. Steps
that a pool of the first schema took have the first part alone.
"""

from __future__ import annotations

import struct

from agentworld.records.ids import DIGEST_SIZE, framed_digest

SAID_BYTES = 16
_LENGTH = struct.Struct(">Q").pack  # how `framed` writes the length before each part
_SHORT = [_LENGTH(length) for length in range(32)]  # of numbers as text
_OF_DIGEST = _LENGTH(DIGEST_SIZE)
_NO_NUMBERS = _LENGTH(1) + b"-"
_NOTHING = _LENGTH(0)
_STORED_BYTES = 8


def step_digest(rest: bytes, stored: bytes) -> bytes:
    """`rest`: the JSON of all that is neither array nor message; `stored`: see stored_parts."""
    said = framed_digest(b"".join((_LENGTH(len(rest)), rest, stored)))
    return said + framed_digest(stored)[:_STORED_BYTES]


def content_digest(
    rest: bytes,
    mask: bytes | None,
    logprobs: bytes | None,
    tokens: tuple[bytes, int] | None,
    messages: bytes,
    present: int,
) -> bytes:
    """`step_digest` of `rest` and `stored_parts` of all else, as it is of nearly every step."""
    if mask is not None or logprobs is None or tokens is None:
        return step_digest(rest, stored_parts(mask, logprobs, tokens, messages, present))
    first, number = b"%d" % tokens[1], b"%d" % present
    stored = b"".join(
        (
            _NOTHING,
            _LENGTH(1 + len(logprobs)),
            b"+",
            logprobs,
            _OF_DIGEST,
            tokens[0],
            _SHORT[len(first)],
            first,
            _OF_DIGEST,
            messages,
            _SHORT[len(number)],
            number,
        )
    )
    said = framed_digest(b"".join((_LENGTH(len(rest)), rest, stored)))
    return said + framed_digest(stored)[:_STORED_BYTES]


def stored_digest(stored: bytes) -> bytes:
    """The part that a check computes again."""
    return framed_digest(stored)[:_STORED_BYTES]


def stored_parts(
    mask: bytes | None,
    logprobs: bytes | None,
    tokens: tuple[bytes, int] | None,
    messages: bytes,
    present: int,
) -> bytes:
    """What is stored exactly, framed as `digest` does. `tokens`: the digest of the sequence and the length of its first
    part; `messages`: that of the conversation; `present`: the bits of what was said at all.
    """
    number = b"%d" % present
    bits = _SHORT[len(number)] + number
    sequence = b""
    if tokens is not None:
        first = b"%d" % tokens[1]
        sequence = b"".join((_OF_DIGEST, tokens[0], _SHORT[len(first)], first))
    if logprobs is None:
        return b"".join((_framed(mask or b""), _NO_NUMBERS, sequence, _OF_DIGEST, messages, bits))
    # The sign says that there are numbers, and is one of them to the frame.
    size = _LENGTH(1 + len(logprobs))
    return b"".join((_framed(mask or b""), size, b"+", logprobs, sequence, _OF_DIGEST, messages, bits))


def _framed(part: bytes) -> bytes:
    return _LENGTH(len(part)) + part


def same_content(known: bytes, sent: bytes) -> bool:
    """Whether a step that is there says the same as one that was sent."""
    return known[:SAID_BYTES] == sent[:SAID_BYTES]


def sequence_content(last: bytes, tail: bytes) -> bytes:
    """The digest of a sequence: that of its last full block (or of its vocabulary) and its tail as uint32."""
    return framed_digest(b"".join((_OF_DIGEST, last, _LENGTH(len(tail)), tail)))  # As digest(last, tail) is.


def conversation_content(tools: bytes, last: bytes, prompt_length: int | None) -> bytes:
    """The digest of a conversation: that of its tools, of its last message, and how much of it is the prompt."""
    length = b"" if prompt_length is None else b"%d" % prompt_length
    parts = (_LENGTH(len(tools)), tools, _LENGTH(len(last)), last, _LENGTH(len(length)), length)
    return framed_digest(b"".join(parts))  # As digest(tools, last, length) is.
