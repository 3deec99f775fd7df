"""Images and other media within messages, in the spelling of any API: their bytes, or the address in their place."""

from __future__ import annotations

from typing import Any

from agentworld.ingest.formats.media import Media, Put, put_base64, put_nothing, put_url
from agentworld.ingest.spans.attributes import first
from agentworld.ingest.spans.loose import table, text
from agentworld.records import MediaPart

_TYPES = ("mime_type", "mimeType", "mediaType", "media_type")
_ADDRESSES = ("image_url", "file_data", "url", "uri", "file_uri", "fileUri")
_BYTES = ("data", "content", "blob", "image", "base64", "file_data")


def blob(part: dict[str, Any], media: Media) -> Put:
    """The medium of a content part, put into `media`."""
    said = text(first(part, *_TYPES))
    around = table(first(part, "source", "inline_data", "inlineData", "file", "input_audio", "file_uri"))
    if "input_audio" in part:
        said = f"audio/{around.get('format') or 'wav'}"
    said = text(first(around, *_TYPES)) or said
    where = first(around, *_ADDRESSES) or first(part, *_ADDRESSES)
    detail = text(table(where).get("detail")) or text(part.get("detail"))
    if isinstance(where, dict):
        where = where.get("url")
    data = text(first(around, *_BYTES)) or text(first(part, *_BYTES))
    for each in (text(where), data):
        if each is not None and (each.startswith("data:") or "://" in each[:16]):
            return put_url(media, each, said, detail)
    if data is None:
        named = text(where)
        return put_nothing(media, said=said) if named is None else put_url(media, named, said, detail)
    found = put_base64(media, data, said, detail)
    return Put(found) if isinstance(found, MediaPart) else put_nothing(media, f"a medium cannot be read: {found}", said)
