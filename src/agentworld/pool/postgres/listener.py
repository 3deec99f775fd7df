"""One connection that hears of the commits of other processes (LISTEN/NOTIFY), for all who wait for events here."""

from __future__ import annotations

import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable

import psycopg
from psycopg import sql

from agentworld.errors import PoolError
from agentworld.pool.postgres.connection import RawConnection
from agentworld.pool.postgres.errors import first_line

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0
_WELL_AFTER = 5.0  # that a connection lasted: what comes then is another outage
Connect = Callable[[], RawConnection]

_log = logging.getLogger("agentworld.pool")


class Listener:
    """Calls every `wake` after each commit that is told on `channel`, and after each connection, since what came while
    there was none went unheard. The connection is there while somebody waits, and is made anew where it is lost.
    """

    def __init__(self, connect: Connect, channel: str) -> None:
        self._connect = connect
        self._channel = channel
        self._guard = threading.Lock()
        self._wakes: list[Callable[[], None]] = []
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._sockets: tuple[socket.socket, socket.socket] | None = None

    def add(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake`, from the listening thread, until the returned function is called."""
        with self._guard:
            if self._ended.is_set():
                raise PoolError("the pool is closed", hint="Open it again")
            self._wakes.append(wake)
            if self._thread is None:
                self._sockets = socket.socketpair()  # What comes through it ends the thread's waiting.
                self._thread = threading.Thread(target=self._run, name="agentworld-pool-listener", daemon=True)
                self._thread.start()

        def stop() -> None:
            with self._guard:
                if wake in self._wakes:
                    self._wakes.remove(wake)

        return stop

    def close(self) -> None:
        """End the thread and its connection."""
        with self._guard:
            if self._ended.is_set():
                return
            self._ended.set()
            if self._thread is None or self._sockets is None:
                return
            self._sockets[0].send(b"x")
        self._thread.join()
        for end in self._sockets:
            end.close()

    def _run(self) -> None:
        pause, is_told = _FIRST_PAUSE, False
        while not self._ended.is_set():
            heard_from: float | None = None
            try:
                with self._connect() as raw:
                    raw.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
                    heard_from = time.monotonic()
                    self._wake_all()
                    self._hear(raw)
            except (psycopg.Error, PoolError, OSError) as error:
                if heard_from is not None and time.monotonic() - heard_from >= _WELL_AFTER:
                    pause, is_told = _FIRST_PAUSE, False
                if not self._ended.is_set() and not is_told:
                    is_told = True  # Once, however many attempts the outage takes.
                    _log.warning("listening to the pool is interrupted: %s", first_line(error))
            self._ended.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _hear(self, raw: RawConnection) -> None:
        assert self._sockets is not None
        with selectors.DefaultSelector() as selector:
            selector.register(raw.fileno(), selectors.EVENT_READ)
            selector.register(self._sockets[1], selectors.EVENT_READ)
            while not self._ended.is_set():
                selector.select()
                raw.pgconn.consume_input()  # OperationalError where the connection is lost.
                heard = False
                while raw.pgconn.notifies() is not None:
                    heard = True
                if heard:
                    self._wake_all()

    def _wake_all(self) -> None:
        with self._guard:
            wakes = list(self._wakes)
        for wake in wakes:
            wake()
