"""Images and other media within messages: their bytes where the message has them. No address is ever fetched."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import Any

from agentworld.dialects.media import sniff
from agentworld.ingest.spans.loose import text
from agentworld.records import MediaPart

_DATA_URL = re.compile(r"data:(?P<type>[^;,]{0,100})(?:;[^;,]{1,100}){0,16}?;base64,", re.IGNORECASE)
_TYPE = re.compile(r"[a-zA-Z0-9.+-]{1,60}/[a-zA-Z0-9.+-]{1,60}")
MAX_BYTES = 20 * 1024 * 1024


class NoBlob(Exception):
    """`str`: why there are no bytes."""


def blob(part: dict[str, Any], media: dict[str, tuple[bytes, str]]) -> MediaPart:
    """The media of a content part in the spelling of any API, its bytes put into `media`; NoBlob where it has none."""
    detail = part.get("detail")
    source = part.get("source")
    where = part.get("image_url") or part.get("file_data") or part.get("url") or part.get("uri")
    if isinstance(source, dict):
        where = source.get("url") or where
        data, said = source.get("data"), source.get("media_type")
    elif isinstance(part.get("inline_data"), dict) or isinstance(part.get("inlineData"), dict):
        inline = part.get("inline_data") or part["inlineData"]
        data, said = inline.get("data"), inline.get("mime_type") or inline.get("mimeType")
    elif isinstance(part.get("input_audio"), dict):
        data, said = part["input_audio"].get("data"), f"audio/{part['input_audio'].get('format') or 'wav'}"
    else:
        data = next(
            (part[name] for name in ("data", "content", "blob", "image", "base64") if text(part.get(name))), None
        )
        said = next(
            (part[name] for name in ("mime_type", "mimeType", "mediaType", "media_type") if part.get(name)), None
        )
    if isinstance(where, dict):
        detail = where.get("detail") or detail
        where = where.get("url")
    for each in (where, data):
        if isinstance(each, str) and (found := _DATA_URL.match(each)):
            data, said = each[found.end() :], found["type"] or said
            where = None
            break
    if not isinstance(data, str) or data.startswith(("http://", "https://")):
        address = text(where) or text(data)
        raise NoBlob("it is an address, which is not fetched" if address else "it has no bytes")
    if len(data) > MAX_BYTES * 4 // 3 + 4:
        raise NoBlob(f"it is larger than {MAX_BYTES} bytes")
    try:
        decoded = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise NoBlob("its bytes are no base64") from None
    kind = sniff(decoded) or (said if isinstance(said, str) and _TYPE.fullmatch(said) else "application/octet-stream")
    digest = hashlib.blake2b(decoded, digest_size=16).hexdigest()
    media[digest] = decoded, kind
    return MediaPart(digest=digest, media_type=kind, detail=detail if isinstance(detail, str) and detail else None)
