"""Following a server's events: one stream of server-sent events after the other, each from the last event seen."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import urlencode

import msgspec

from agentworld.client import wire
from agentworld.client.connection import TRY_AGAIN, check_url, unreachable
from agentworld.client.wire import API
from agentworld.records import Event

# A stream that is silent for longer than this has lost its server, which says something every 15 s.
SILENCE = 45.0
# Seconds without any answer after which the server is given up, and the pauses between tries.
PATIENCE = 60.0
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0

_event = msgspec.json.Decoder(Event)


class _LostError(Exception):
    """The stream broke, or its server does not answer; another try may do."""


def follow(
    url: str,
    headers: Mapping[str, str],
    after: int,
    timeout: float | None = None,
    wanted: frozenset[str] | None = None,
) -> Iterator[Event]:
    """Events with a sequence over `after`, each once; see Pool.follow.

    A stream that breaks is taken up again. ServerUnreachableError where nothing answers for PATIENCE seconds, and the
    server's own error where it refuses.
    """
    quiet_since = answered = time.monotonic()
    pause = FIRST_PAUSE

    def silence() -> float:
        """Seconds that may pass until the next event, for a socket."""
        left = SILENCE if timeout is None else min(SILENCE, quiet_since + timeout - time.monotonic())
        return max(left, 0.001)

    while True:
        try:
            for event in _stream(url, headers, after, silence):
                answered, pause = time.monotonic(), FIRST_PAUSE
                if event is None:
                    continue
                after = event.sequence
                if wanted is None or event.kind in wanted:
                    yield event
                    quiet_since = time.monotonic()
        except _LostError as lost:
            if timeout is not None and time.monotonic() - quiet_since >= timeout:
                return
            if time.monotonic() - answered >= PATIENCE:
                raise unreachable(url, lost) from None
        if timeout is not None and time.monotonic() - quiet_since >= timeout:
            return
        time.sleep(min(pause, silence()))
        pause = min(2 * pause, LONGEST_PAUSE)


def _stream(url: str, headers: Mapping[str, str], after: int, silence: Callable[[], float]) -> Iterator[Event | None]:
    """The events of one stream, and None for each sign of life without one; ends with it."""
    parts = check_url(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=silence())
    path = f"{API}/events?{urlencode({'after': after})}"
    try:
        connection.request("GET", parts.path + path, headers={**headers, "Accept": "text/event-stream"})
        response = connection.getresponse()
        if response.status in TRY_AGAIN:
            raise _LostError(f"status {response.status}")
        if response.status >= 300:
            raise wire.control_error(response.status, response.read(), url, path)
        data = b""
        while True:
            if connection.sock is not None:
                connection.sock.settimeout(silence())
            line = response.readline()
            if not line:
                return
            line = line.rstrip(b"\r\n")
            if line.startswith(b"data:"):
                data += line[5:].strip()
            elif line.startswith(b":"):
                yield None
            elif not line and data:
                yield _read(data, url)
                data = b""
    except (OSError, http.client.HTTPException) as error:
        raise _LostError(str(error) or type(error).__name__) from None
    finally:
        connection.close()


def _read(data: bytes, url: str) -> Event:
    try:
        return _event.decode(data)
    except msgspec.MsgspecError as error:
        raise wire.not_agentworld(url, f"an event of it cannot be read ({error})") from None
