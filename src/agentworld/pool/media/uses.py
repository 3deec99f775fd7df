"""Which blobs a message shows."""

from __future__ import annotations

import contextlib

from agentworld.records import Message


def media_uses_of(message: Message) -> list[bytes]:
    """The digests that the message's media parts name, each once; what is no digest names nothing of the pool."""
    found: dict[bytes, None] = {}
    if message.content.__class__ is tuple:
        for part in message.media:
            with contextlib.suppress(ValueError):
                if len(digest := bytes.fromhex(part.digest)) == 16:
                    found[digest] = None
    return list(found)
