"""Plain HTTP over the standard library: one keep-alive connection a thread, retries where sending again is safe."""

from __future__ import annotations

import http.client
import os
import select
import threading
import time
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from agentworld.errors import AgentWorldError, ConfigError
from agentworld.pool.urls import shown_url

# Pauses before the second, third and fourth try, in seconds.
BACKOFF = (0.1, 0.4, 1.6)
# Answers that mean "not now": a proxy without a backend, a server that is starting.
TRY_AGAIN = frozenset({502, 503, 504})


class ServerUnreachableError(AgentWorldError):
    """Nothing answers at the server's address."""

    code = "server_unreachable"
    status = 503


class Reply(NamedTuple):
    """Status and body."""

    status: int
    body: bytes


def check_url(url: str) -> SplitResult:
    """The parts of an http or https address; ConfigError names what is wrong."""
    try:
        parts = urlsplit(url.rstrip("/"))
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        is_pool = parts.scheme.startswith(("sqlite", "postgres", "memory"))
        hint = (
            "This is a pool, not a server: agentworld.open_pool(URL) in Python"
            if is_pool
            else "Write http://127.0.0.1:8400"
        )
        raise ConfigError(f"{shown_url(url)!r} is not the address of a server", hint=hint)
    return parts


def unreachable(url: str, reason: object) -> ServerUnreachableError:
    """The error for an address that does not answer."""
    return ServerUnreachableError(
        f"Nothing answers at {url}: {reason}", hint="Start it with `agentworld serve`, or correct the address"
    )


class Connection:
    """Requests to one origin, from any thread. `timeout`: seconds a socket may be silent."""

    def __init__(self, url: str, *, timeout: float = 60.0, headers: Mapping[str, str] | None = None) -> None:
        self._parts = check_url(url)
        self.url = url.rstrip("/")
        self._timeout = timeout
        self._headers = dict(headers or {})
        self._local = threading.local()
        self._lock = threading.Lock()
        self._open: set[http.client.HTTPConnection] = set()
        self._process = os.getpid()

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        retry: bool = True,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Reply:
        """Send and read the whole reply; ServerUnreachableError after the last try.

        `path` starts behind the origin. Where `retry` is false, only failures to connect are tried again.
        """
        reply: Reply | None = None
        reason: object = ""
        for pause in (0.0, *BACKOFF):
            time.sleep(pause)
            connection = self._connection(timeout or self._timeout)
            try:
                if connection.sock is None:
                    connection.connect()
            except OSError as error:
                self._drop(connection)
                reason = error.strerror or error
                continue
            try:
                connection.request(method, self._parts.path + path, body, self._all_headers(body, headers))
                response = connection.getresponse()
                reply = Reply(response.status, response.read())
            except (OSError, http.client.HTTPException) as error:
                self._drop(connection)
                reason = error or type(error).__name__
                if not retry:
                    break
                continue
            if retry and reply.status in TRY_AGAIN:
                continue
            return reply
        if reply is not None:
            return reply
        raise unreachable(self.url, reason)

    def close(self) -> None:
        """Close the connections of every thread."""
        self._leave_to_parent()
        with self._lock:
            connections, self._open = self._open, set()
        for connection in connections:
            connection.close()
        self._local = threading.local()

    def _all_headers(self, body: bytes | None, extra: Mapping[str, str] | None) -> dict[str, str]:
        headers = {"Accept": "application/json", **self._headers, **(extra or {})}
        if body is not None:
            headers["Content-Type"] = "application/json"
        return headers

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        self._leave_to_parent()
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is not None and connection.sock is not None:
            # Between two requests nothing is to be read; if something is, the server has closed this connection.
            if not select.select([connection.sock], [], [], 0)[0]:
                connection.sock.settimeout(timeout)
                return connection
            self._drop(connection)
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._parts.hostname or "", self._parts.port, timeout=timeout)
        self._local.connection = connection
        with self._lock:
            self._open.add(connection)
        return connection

    def _leave_to_parent(self) -> None:
        """A fork took the sockets along: what is asked on one of them may be answered to the other process."""
        if self._process != os.getpid():
            self._lock, self._open, self._local = threading.Lock(), set(), threading.local()
            self._process = os.getpid()  # Last: another thread must not find the lock, which may be held for ever.

    def _drop(self, connection: http.client.HTTPConnection) -> None:
        connection.close()
        with self._lock:
            self._open.discard(connection)
        self._local.connection = None
