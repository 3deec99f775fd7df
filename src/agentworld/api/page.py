"""The dashboard's page, as it was built into the package. It holds no data: what it shows it asks of this API."""

from __future__ import annotations

import asyncio
import functools
import gzip
import mimetypes
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, NamedTuple

from litestar import Request, Response, get
from litestar.params import FromPath
from litestar.response import Redirect

from agentworld.api.scopes import PAGE
from agentworld.errors import NotFoundError

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Nothing is loaded from elsewhere, and no text of the pool can become a script or a style."""
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_ASSETS = "assets/"
_INDEX = "index.html"
_LEAST_COMPRESSED = 1024


class _File(NamedTuple):
    data: bytes
    compressed: bytes | None
    media_type: str


@functools.cache
def _files() -> dict[str, _File]:
    """What was built, by path; empty where it was not."""
    found: dict[str, _File] = {}
    _gather(resources.files("agentworld.api").joinpath("static"), "", found)
    return found


def _gather(folder: Traversable, at: str, found: dict[str, _File]) -> None:
    if not folder.is_dir():
        return
    for entry in folder.iterdir():
        if entry.is_dir():
            _gather(entry, f"{at}{entry.name}/", found)
            continue
        data = entry.read_bytes()
        compressed = gzip.compress(data, mtime=0) if len(data) >= _LEAST_COMPRESSED else None
        kind = mimetypes.guess_type(entry.name)[0] or "application/octet-stream"
        found[at + entry.name] = _File(data, compressed, kind)


def is_built() -> bool:
    """Whether the page is part of this installation."""
    return _INDEX in _files()


@get("/", include_in_schema=False, sync_to_thread=False)
def root() -> Redirect:
    """To the page."""
    return Redirect(f"{PAGE}/", status_code=307)


@get([PAGE, f"{PAGE}/{{path:path}}"], include_in_schema=False, opt={"of_page": True})
async def page(request: Request[Any, Any, Any], path: FromPath[str] = "/") -> Response[bytes]:
    """A file of the page; every other path below is the page itself, which knows its own addresses."""
    name = path.strip("/")
    files = await asyncio.to_thread(_files)
    if _INDEX not in files:
        raise NotFoundError(
            "The dashboard is not built into this installation",
            hint="In a checkout run `make dashboard`, then start the server again",
        )
    if name.startswith(_ASSETS) and name not in files:
        raise NotFoundError(f"There is no {PAGE}/{name[:200]}", hint="Load the page again: it was built anew")
    file = files.get(name) or files[_INDEX]
    # The names of assets change with what is in them.
    caching = "public, max-age=31536000, immutable" if name.startswith(_ASSETS) else "no-cache"
    headers = {**_HEADERS, "Cache-Control": caching, "Vary": "Accept-Encoding"}
    data = file.data
    if file.compressed is not None and "gzip" in request.headers.get("accept-encoding", ""):
        data, headers["Content-Encoding"] = file.compressed, "gzip"
    return Response(data, media_type=file.media_type, headers=headers)


ROUTES = [root, page]
