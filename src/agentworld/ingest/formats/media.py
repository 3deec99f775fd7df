"""Images and other media of files: bytes that a file has, and addresses of what it only names.

No address is fetched. One rule holds in all formats, so that no reader takes a conversation that lost its picture for
one that had none: what a file only names is a medium of the type text/uri-list that holds its address, with a note by
which nothing is lost; what has neither bytes that can be read nor an address is such a medium of about:blank, and lost.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable
from typing import NamedTuple

from agentworld.dialects.media import sniff
from agentworld.records import MediaPart

ADDRESS = "text/uri-list"
"""The media type of a medium whose bytes are the address of what was shown."""
MAX_BYTES = 64 * 1024 * 1024
_DATA_URL = re.compile(r"data:(?P<type>[^;,]{0,100})(?:;[^;,]{1,100}){0,16}?;base64,", re.IGNORECASE)
_TYPE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,63}/[a-z0-9][a-z0-9.+-]{0,63}")
_ALIASES = {"image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "image/x-png": "image/png"}
_BLANK = b"about:blank"
_OTHER = "application/octet-stream"

Media = dict[str, tuple[bytes, str]]
_NAMED = "what it shows is not in the file; its address is kept"
_NOTHING = "a medium has neither bytes nor an address; about:blank stands in its place"


class Put(NamedTuple):
    """What stands for a medium; `why`: what is to be noted, if anything, and whether that is `lost`."""

    part: MediaPart
    why: str | None = None
    lost: bool = False


def put_bytes(media: Media, data: bytes, said: str | None = None, detail: str | None = None) -> MediaPart:
    """The part for bytes, which are added to `media`. An image's type is what its bytes say, whatever `said` says."""
    name = (said or "").strip().lower()
    media_type = sniff(data) or _ALIASES.get(name, name)
    if not _TYPE.fullmatch(media_type):
        media_type = _OTHER
    digest = hashlib.blake2b(data, digest_size=16).hexdigest()
    media[digest] = (data, media_type)
    return MediaPart(digest=digest, media_type=media_type, detail=detail)


def put_address(media: Media, address: str, said: str | None = None) -> MediaPart:
    """The part for what a file only names; `said`: of which type it is, kept as the part's detail."""
    data = address.encode("utf-8", "surrogatepass") or _BLANK
    digest = hashlib.blake2b(data, digest_size=16).hexdigest()
    media[digest] = (data, ADDRESS)
    return MediaPart(digest=digest, media_type=ADDRESS, detail=said or None)


def put_nothing(media: Media, why: str = _NOTHING, said: str | None = None) -> Put:
    """What stands in the place of a medium that is not there."""
    return Put(put_address(media, "", said), why, True)


def put_base64(media: Media, text: str, said: str | None = None, detail: str | None = None) -> MediaPart | str:
    """The part for base64, or why there is none."""
    if len(text) > MAX_BYTES * 4 // 3 + 4:
        return f"a medium takes at most {MAX_BYTES} bytes"
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return "it is not valid base64"
    return put_bytes(media, data, said, detail) if data else "it is empty"


def put_url(
    media: Media,
    url: str,
    said: str | None = None,
    detail: str | None = None,
    beside: Callable[[str], bytes | None] = lambda address: None,
) -> Put:
    """The part for a data URL with its bytes, or for any other address as such."""
    found = _DATA_URL.match(url)
    if found is None and (data := beside(url)):
        return Put(put_bytes(media, data, said, detail))
    if found is None:
        return Put(put_address(media, url, said), _NAMED) if url.strip() else put_nothing(media, said=said)
    part = put_base64(media, url[found.end() :], found["type"], detail)
    if isinstance(part, MediaPart):
        return Put(part)
    return Put(put_address(media, url[:200], said), f"a data URL is broken: {part}", True)
