"""Media: blobs that messages name by digest."""

from __future__ import annotations

import msgspec
from litestar import Response, get, post
from litestar.datastructures import State
from litestar.params import FromPath, RawBody

from agentworld.api.access import reach
from agentworld.api.bodies import decode
from agentworld.client.wire import API
from agentworld.pool.media import Medium


class MediaRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A blob in base64 (64 MiB at most, and within the longest body), and its type, such as `image/png`."""

    data: bytes
    media_type: str


class MediaReply(msgspec.Struct, frozen=True):
    """What messages name the blob by: the hex BLAKE2b-128 of its bytes."""

    digest: str


@post(f"{API}/media", status_code=200, sync_to_thread=True, opt={"body": MediaRequest})
def put_media(state: State, body: RawBody) -> MediaReply:
    """Store a blob once; again is no error. One that no message shows is collected after a day."""
    sent = decode(body, MediaRequest)
    return MediaReply(reach(state).put_media(sent.data, sent.media_type))


@get(f"{API}/media/{{digest:str}}", sync_to_thread=True)
def get_media(state: State, digest: FromPath[str]) -> Response[bytes]:
    """The bytes of a blob, verified, as a file to download; `X-Media-Type` is what its sender said it is."""
    medium: Medium = reach(state).get_media(digest)
    # Never as what it says it is: it came from an agent, and a browser would run it on this origin.
    headers = {
        "X-Content-Type-Options": "nosniff",
        "Content-Disposition": f'attachment; filename="{medium.digest}"',
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "X-Media-Type": medium.media_type,
    }
    return Response(medium.data, media_type="application/octet-stream", headers=headers)


ROUTES = [put_media, get_media]
