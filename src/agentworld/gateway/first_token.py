"""How long an engine may take to begin its reply (`first_token_seconds` of a model)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager

from agentworld.capture.call import Call
from agentworld.dialects.exchange import Delta
from agentworld.engines.base import Capabilities, EngineTimeoutError


class FirstTokenError(EngineTimeoutError):
    """The engine took a call, and did not begin its reply in time."""


def begins_early(call: Call, able: Capabilities) -> bool:
    """Whether the engine shows the first token of this call's reply before the last: it is asked for a stream."""
    by_ids = call.prompt_ids is not None or call.request.prompt is not None
    streams = able.stream_generate if by_ids else able.stream_ids or call.source == "none"
    return call.request.stream and streams


def begun_within(
    seconds: float | None, asked: AbstractAsyncContextManager[AsyncIterator[Delta]]
) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
    """What the engine answers, as `asked` gives it; FirstTokenError where no token has come after so many seconds.
    None: it may take as long as the call.
    """
    return asked if seconds is None else _bounded(seconds, asked)


@asynccontextmanager
async def _bounded(
    seconds: float, asked: AbstractAsyncContextManager[AsyncIterator[Delta]]
) -> AsyncIterator[AsyncIterator[Delta]]:
    deadline = asyncio.get_running_loop().time() + seconds
    async with AsyncExitStack() as stack:
        async with _by(deadline, seconds):
            deltas = await stack.enter_async_context(asked)
        yield await stack.enter_async_context(aclosing(_watched(deltas, deadline, seconds)))


async def _watched(deltas: AsyncIterator[Delta], deadline: float, seconds: float) -> AsyncGenerator[Delta, None]:
    begun = False
    while not begun:
        async with _by(deadline, seconds):
            try:
                delta = await anext(deltas)
            except StopAsyncIteration:
                return
        # Some engines open a stream before they compute anything.
        begun = bool(delta.ids or delta.text or delta.reasoning or delta.tool_calls or delta.finish_reason)
        yield delta
    async for delta in deltas:
        yield delta


@asynccontextmanager
async def _by(deadline: float, seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout_at(deadline) as limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise FirstTokenError(
            f"the engine gave no token within {seconds:g} s",
            hint="Check its load, or raise first_token_seconds of the model",
        ) from None
