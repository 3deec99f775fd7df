"""The server's clock, without asking it each time."""

from __future__ import annotations

import threading
import time

REFRESH_SECONDS = 30.0


class ServerClock:
    """Seconds since the epoch by the PostgreSQL server's clock, so that all machines agree on deadlines.

    The server's time comes with each write transaction, and with a read where the last one was long ago; in between
    this machine's monotonic clock counts on. It errs by the time that an answer takes on the network. Times never go
    backwards: where the server's clock was set back, time stands still here until it has caught up.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._offset: float | None = None
        self._observed = 0.0
        self._last = 0.0

    def observe(self, server: float) -> None:
        """The server has just said that it is `server`."""
        now = time.monotonic()
        with self._guard:
            self._offset, self._observed = server - now, now

    def is_due(self) -> bool:
        """Whether the server should be asked again."""
        return self._offset is None or time.monotonic() - self._observed > REFRESH_SECONDS

    def __call__(self) -> float:
        """Now."""
        with self._guard:
            assert self._offset is not None, "opening the pool asks the server"
            self._last = max(self._last, self._offset + time.monotonic())
            return self._last
