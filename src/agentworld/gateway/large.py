"""Work on large bodies, which would hold up every other call of the process while it goes on in the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

INLINE_BYTES = 256 * 1024
"""Bodies up to this size are read in the event loop, as that takes a few milliseconds."""

P = ParamSpec("P")
T = TypeVar("T")


async def apart(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What `work` returns, which has to do with a body of `size` bytes: in a thread where that is large."""
    if size <= INLINE_BYTES:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)
