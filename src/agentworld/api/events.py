"""The pool's events: as a stream that goes on where the client left it, or page by page."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncGenerator, Callable
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, get
from litestar.concurrency import sync_to_thread
from litestar.datastructures import State
from litestar.params import QueryParameter
from litestar.response import Stream

from agentworld.api.access import key_holds, reach
from agentworld.api.at_end import at_end
from agentworld.client.wire import API
from agentworld.errors import InvalidRequestError
from agentworld.gateway.access import CACHE_SECONDS
from agentworld.pool.events import FIRST_PAUSE, GROWTH, PAGE
from agentworld.pool.protocol import Page, Pool, sequence_page
from agentworld.records import Event

# Seconds of silence after which a comment keeps proxies from closing the stream. One newline only: a blank line would
# make some clients dispatch an empty event.
KEEP_ALIVE = 15.0

Limit = Annotated[int, QueryParameter(ge=1, le=1000, description="Events a page, at most")]
About = Annotated[str | None, QueryParameter(description="About this trajectory alone, and what is told to all")]
Within = Annotated[str | None, QueryParameter(description="Of this channel alone, and what is told to all")]
After = Annotated[int, QueryParameter(ge=0, description="What has a sequence over this")]
FromNow = Annotated[bool, QueryParameter(description="What comes from now on; Last-Event-ID goes before it")]


@get(f"{API}/events")
async def events(
    request: Request[Any, Any, Any],
    state: State,
    after: After = 0,
    limit: Limit = 1000,
    trajectory_id: About = None,
    channel: Within = None,
    from_now: FromNow = False,
) -> Response[Page[Event]]:
    """Events in commit order. With `Accept: application/json` one page; otherwise a stream of server-sent events, which
    begins after the header Last-Event-ID, or after `after`. A key that is bound to a channel or a trajectory gets what
    is about that, and what is told to all; `from_now` spares it the number of the pool's last event, which it may not
    ask for.
    """
    look = functools.partial(reach(state).events, trajectory_id=trajectory_id, channel=channel)
    accept = request.headers.get("accept", "")
    if "application/json" in accept and "text/event-stream" not in accept:
        found = await sync_to_thread(look, after, limit)
        return Response(sequence_page(found, limit))
    named = request.headers.get("last-event-id")
    if from_now and named is None:
        start = (await sync_to_thread(state.pool.stats)).last_event
    else:
        start = _last_event_id(named, after)
    await sync_to_thread(look, start, 1)  # What is asked wrongly is an error, and no stream that breaks off.
    frames = follow(reach(state), start, state.closing, key_holds(state), look)
    at_end(request, frames.aclose)
    stream: Any = Stream(
        frames,
        media_type="text/event-stream",
        headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"},
    )
    return stream  # type: ignore[no-any-return]


def _last_event_id(header: str | None, after: int) -> int:
    if header is None:
        return after
    if not (header.isascii() and header.isdigit() and len(header) < 19):
        raise InvalidRequestError(
            f"{header[:40]!r} is no event id", path="Last-Event-ID", hint="Send the last id received"
        )
    return int(header)


async def follow(
    pool: Pool,
    after: int,
    closing: asyncio.Event,
    holds: Callable[[], bool] | None = None,
    look: Callable[[int, int], list[Event]] | None = None,
) -> AsyncGenerator[bytes, None]:
    """Frames of every event after `after`, as they are committed, until `closing` is set, or the caller's key does not
    hold any more (`holds`). `look`: gives those that are asked for, after a sequence; of all where it is left out.

    Woken by the pool as `Pool.follow` is; no thread waits meanwhile.
    """
    woken = asyncio.Event()
    stop = await sync_to_thread(pool.watch, _waker(woken))
    ends = asyncio.ensure_future(closing.wait())
    pause = FIRST_PAUSE
    quiet_since = checked_at = time.monotonic()
    try:
        yield b": agentworld events\n"
        while not closing.is_set():
            if holds is not None and time.monotonic() - checked_at >= CACHE_SECONDS:
                if not await sync_to_thread(holds):
                    return
                checked_at = time.monotonic()
            woken.clear()  # Before the look: what is committed after it wakes anew.
            found = await sync_to_thread(look or pool.events, after, PAGE)
            if found:
                after = found[-1].sequence
                pause, quiet_since = FIRST_PAUSE, time.monotonic()
                yield b"".join(frame(event) for event in found)
                continue
            if time.monotonic() - quiet_since >= KEEP_ALIVE:
                quiet_since = time.monotonic()
                yield b": ping\n"
            if not await _woken(woken, ends, pause if holds is None else min(pause, CACHE_SECONDS)):
                pause = min(pause * GROWTH, pool.poll_seconds)
    finally:
        ends.cancel()
        stop()


async def _woken(woken: asyncio.Event, ends: asyncio.Future[Any], seconds: float) -> bool:
    """Wait for the first of the two, at most that long; whether it was the event."""
    wakes = asyncio.ensure_future(woken.wait())
    try:
        await asyncio.wait({wakes, ends}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return wakes.done()
    finally:
        wakes.cancel()  # Also where the client has left, which cancels whoever waits here.


def _waker(woken: asyncio.Event) -> Callable[[], None]:
    """What sets the event from any thread."""
    loop = asyncio.get_running_loop()

    def wake() -> None:
        with contextlib.suppress(RuntimeError):  # The loop has ended, and with it who waited.
            loop.call_soon_threadsafe(woken.set)

    return wake


def frame(event: Event) -> bytes:
    """One server-sent event."""
    kind = event.kind.replace("\n", " ").replace("\r", " ")
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.sequence, kind.encode(), msgspec.json.encode(event))


ROUTES = [events]
