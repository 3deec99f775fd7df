"""Marks of calls that name no trajectory, see agentworld.pool.call_marks.

Each holds the digest of the caller's key, so that two callers with equal text do not join.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentworld.capture.call import Call
from agentworld.capture.replies import reply_keys
from agentworld.dialects.exchange import Choice
from agentworld.records import Mark, digest


def path_mark(key: bytes, path: bytes) -> str:
    """The mark of the conversation up to a reply; `path`: its match key."""
    return digest(b"path", key, path).hex()


def call_mark(key: bytes, body_digest: str) -> str:
    """The mark of a call's body."""
    return digest(b"call", key, body_digest.encode()).hex()


def marks_of(call: Call, choices: Sequence[Choice] | None) -> list[Mark]:
    """What is marked of a call that ended; `choices`: None where it failed."""
    key = call.anonymous
    if key is None:
        return []
    body = call_mark(key, call.body_digest)
    if choices is None or any(choice.finish_reason == "abort" for choice in choices):
        return [Mark(body, "failed")]
    # Texts that went without a template are no conversation that a chat could go on with.
    shown = choices if call.request.prompt is None else ()
    paths = [path for choice in shown for path in reply_keys(call, choice.message)]
    return [Mark(body, "answered"), *(Mark(path_mark(key, path), "reply") for path in dict.fromkeys(paths))]
