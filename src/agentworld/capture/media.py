"""Images of a call on their way between request and pool: each is stored once, before the step that shows it."""

from __future__ import annotations

import asyncio

import msgspec

from agentworld.capture.call import Call
from agentworld.dialects.exchange import Request
from agentworld.dialects.media import media_of
from agentworld.errors import InvalidRequestError, NotFoundError
from agentworld.pool.protocol import Pool
from agentworld.records import MediaPart, digest


async def with_bytes(request: Request, pool: Pool) -> Request:
    """The request with the bytes of images that it did not bring itself, as a stored conversation is continued by its
    name; InvalidRequestError where the pool has one no more.
    """
    missing = {part.digest for part in media_of(request.messages)} - request.media.keys()
    if not missing:
        return request

    def load() -> dict[str, bytes]:
        try:
            return {name: pool.get_media(name).data for name in sorted(missing)}
        except NotFoundError as error:
            raise InvalidRequestError(
                "an image of the conversation is stored no more", path="messages", hint="Send the whole conversation"
            ) from error

    return msgspec.structs.replace(request, media={**request.media, **await asyncio.to_thread(load)})


async def keep_media(pool: Pool, call: Call) -> None:
    """Store the images that the call shows and the step that it continues does not."""
    media = call.request.media
    if not media:
        return
    begin = call.match.depth if call.match is not None else 0
    there = {part.digest for part in media_of(call.request.messages[:begin])}
    new = {part.digest: part for part in media_of(call.request.messages[begin:]) if part.digest not in there}

    def store() -> None:
        for name, part in new.items():
            pool.put_media(media[name], part.media_type)

    if new:
        await asyncio.to_thread(store)


_SHOWN = "+media:"


def shown_under(vocabulary: str, shown: list[MediaPart]) -> str:
    """The vocabulary of ids among which images stand.

    An image's place holders are the same ids whatever it shows. Sequences that show other images are rooted apart, so
    that they never share a block.
    """
    return f"{vocabulary}{_SHOWN}{digest(*(bytes.fromhex(part.digest) for part in shown)).hex()}"


def shows_media(vocabulary: str | None) -> bool:
    """Whether ids of this vocabulary have images among them, as `shown_under` says."""
    return vocabulary is not None and _SHOWN in vocabulary
