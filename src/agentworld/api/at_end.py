"""What a request holds until it has been answered, however that ended.

A streamed body whose client has left stays where it last gave something: nobody asks it for more, and whoever keeps the
fault keeps it. So what it holds is given back by the request, not by the body's own `finally`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

_KEY = "agentworld.at_end"


def at_end(scope: MutableMapping[str, Any], close: Callable[[], Awaitable[None]]) -> None:
    """Have `close` awaited once the request of `scope` is over."""
    scope.setdefault(_KEY, []).append(close)


async def ended(scope: MutableMapping[str, Any]) -> None:
    """The request of `scope` is over."""
    for close in scope.pop(_KEY, ()):
        await close()
