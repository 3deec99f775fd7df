"""When the client of a request that takes long has left."""

from __future__ import annotations

from typing import Any

from litestar import Request


async def until_gone(request: Request[Any, Any, Any]) -> None:
    """Done once the client has left. For a request whose body has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
