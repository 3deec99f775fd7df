"""What a request holds until it has been answered, however that ended.

A streamed body whose client has left stays where it last gave something: nobody asks it for more, and whoever keeps the
fault keeps it. So what it holds is given back by the request, not by the body's own `finally`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, cast

from litestar import Request

_KEY = "agentworld.at_end"


def at_end(request: Request[Any, Any, Any], close: Callable[[], Awaitable[None]]) -> None:
    """Have `close` awaited once `request` is over."""
    scope = cast(MutableMapping[str, Any], request.scope)  # Litestar's own type names the keys that it knows.
    scope.setdefault(_KEY, []).append(close)


async def ended(scope: MutableMapping[str, Any]) -> None:
    """The request of `scope` is over."""
    for close in scope.pop(_KEY, ()):
        await close()
