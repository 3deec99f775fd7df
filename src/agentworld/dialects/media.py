"""Images in requests: data URLs and base64 -> parts by digest and their bytes, and back for engines.

Bytes are taken from the request alone: the gateway fetches no address that a caller names. An image is what its bytes
say; a sender who says otherwise is told, as engines would refuse it later or read it wrong. Left out on purpose: audio,
video and documents.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from agentworld.dialects.fields import Fields
from agentworld.errors import InvalidRequestError
from agentworld.records import MediaPart, Message, TextPart

MAX_IMAGE_BYTES = 20 * 1024 * 1024
MAX_IMAGES = 100
TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_DATA_URL = re.compile(r"data:(?P<type>[^;,]{0,100})(?:;[^;,]{1,100}){0,16}?;base64,", re.IGNORECASE)
_ALIASES = {"image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "image/x-png": "image/png"}
_DETAILS = ("auto", "low", "high", "original")
_SENT_AS = "Send the image itself, as base64"


class Images:
    """The images of one request while it is read: the bytes of each by digest."""

    def __init__(self) -> None:
        self.media: dict[str, bytes] = {}
        self._count = 0

    def data_url(self, url: str, path: str, detail: Any = None) -> MediaPart:
        """The part for a data URL at `path`; InvalidRequestError for any other address."""
        found = _DATA_URL.match(url)
        if found is None:
            remote = url[:8].lower().startswith(("http://", "https://"))
            raise InvalidRequestError(
                f"{path} is {'an address' if remote else 'no data URL'}, and images are not fetched from elsewhere",
                path=path,
                hint="Send the image itself, as data:image/png;base64,...",
            )
        if detail is not None and detail not in _DETAILS:
            raise InvalidRequestError(f"the detail of {path} must be one of {', '.join(_DETAILS)}", path=path)
        return self.encoded(url[found.end() :], found["type"], path, detail)

    def encoded(self, data: str, media_type: str, path: str, detail: str | None = None) -> MediaPart:
        """The part for base64 at `path` that is said to be of a type."""
        self._count += 1
        if self._count > MAX_IMAGES:
            raise InvalidRequestError(f"a request takes at most {MAX_IMAGES} images", path=path)
        if len(data) > MAX_IMAGE_BYTES * 4 // 3 + 4:
            raise InvalidRequestError(
                f"an image takes at most {MAX_IMAGE_BYTES} bytes", path=path, hint="Send a smaller image"
            )
        try:
            decoded = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            raise InvalidRequestError(f"{path} is not valid base64", path=path, hint=_SENT_AS) from None
        said = media_type.strip().lower()
        said = _ALIASES.get(said, said)
        is_of = sniff(decoded)
        if is_of is None:
            raise InvalidRequestError(
                f"the bytes at {path} are no image that is known here", path=path, hint=f"Send {', '.join(TYPES)}"
            )
        if is_of != said:
            raise InvalidRequestError(
                f"{path} says {said[:60]!r}, but its bytes are {is_of}", path=path, hint=f"Say {is_of}"
            )
        digest = hashlib.blake2b(decoded, digest_size=16).hexdigest()
        self.media[digest] = decoded
        return MediaPart(digest=digest, media_type=is_of, detail=detail)


def sniff(data: bytes) -> str | None:
    """The media type that the first bytes of an image say; None for what is no image known here."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return None


def source_image(block: Fields, images: Images) -> MediaPart:
    """The part for the `source` of an image block of Anthropic's API."""
    path = block.where("source")
    source = Fields(block.need("source", dict), path)
    kind = source.need("type", str)
    if kind == "url":
        return images.data_url(source.need("url", str), source.where("url"))
    if kind != "base64":
        raise InvalidRequestError(
            f"images from a source of type {kind[:40]!r} are not here", path=source.where("type"), hint=_SENT_AS
        )
    media_type, data = source.need("media_type", str), source.need("data", str)
    source.finish()
    return images.encoded(data, media_type, source.where("data"))


def content_of(parts: list[TextPart | MediaPart]) -> str | tuple[TextPart | MediaPart, ...]:
    """Parts as content. A single text is a string, as it says the same."""
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return parts[0].text
    return tuple(parts)


def has_media(messages: Iterable[Message]) -> bool:
    """Whether a message shows an image."""
    return any(message.content.__class__ is tuple and message.media for message in messages)


def media_of(messages: Iterable[Message]) -> list[MediaPart]:
    """The media that messages show, in order, each as often as it is shown."""
    return [part for message in messages if message.content.__class__ is tuple for part in message.media]


def as_data_url(part: MediaPart, media: Mapping[str, bytes]) -> str:
    """A part as a data URL; InvalidRequestError where its bytes are not at hand."""
    return f"data:{part.media_type};base64,{base64.b64encode(bytes_of(part, media)).decode()}"


def bytes_of(part: MediaPart, media: Mapping[str, bytes]) -> bytes:
    """The bytes of a part."""
    data = media.get(part.digest)
    if data is None:
        raise InvalidRequestError(f"the image {part.digest} is not there", path="messages", hint="Send it again")
    return data
