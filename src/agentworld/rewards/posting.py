"""JSON over HTTP to addresses of the configuration: bounded in time and size, tried again where that can help.

Redirects are errors, as one would send what is judged, and the key, to an address that nobody configured.
"""

from __future__ import annotations

import functools
import http.client
import io
import os
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from agentworld.records import exact_json
from agentworld.rewards.protocol import EvaluationError

TRY_AGAIN = frozenset({429, 502, 503, 504})
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
_CHUNK = 65536


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where to post, and within which bounds. `seconds`: of one try, from connecting to the last byte."""

    url: str
    api_key_env: str | None = None
    seconds: float = 60.0
    retries: int = 2
    max_bytes: int = 8 << 20

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"url {self.url!r} is no address like http://127.0.0.1:8000")
        if "@" in parts.netloc:
            raise ValueError("url holds a name or a password, which is not sent; name the variable of a key instead")

    @property
    def api_key(self) -> str | None:
        """The key in the environment variable that is named, which has to be there."""
        if self.api_key_env is None:
            return None
        key = os.environ.get(self.api_key_env)
        if not key:
            raise EvaluationError(
                f"the environment variable {self.api_key_env} is not set", path="api_key_env", hint="Put the key in it"
            )
        if not (key.isascii() and key.isprintable()):
            # Said here, as the library that sends it would repeat it.
            raise EvaluationError(f"{self.api_key_env} holds what cannot be a key", path="api_key_env")
        return key


def post(
    address: Address,
    path: str,
    body: Any,
    *,
    headers: Mapping[str, str] | None = None,
    api_key: str | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> Any:
    """The JSON that a POST of `body` to the address and `path` answers.

    Connections that fail and answers of 429, 502, 503 and 504 are tried again, after 0.5 s, 1 s, 2 s and so on or what
    `Retry-After` says, up to 30 s. EvaluationError after the last try, and at once for every other answer.
    """
    data = exact_json.encode(body)
    key = api_key or address.api_key
    sent = {"Content-Type": "application/json", "Accept": "application/json", **(headers or {})}
    if key:
        sent["Authorization"] = f"Bearer {key}"
    trouble, asked, transient = "", 0.0, True
    for attempt in range(address.retries + 1):
        if attempt:
            pause(min(max(FIRST_PAUSE * 2 ** (attempt - 1), asked), LONGEST_PAUSE))
        try:
            status, answer, asked = _once(address, path, data, sent)
        except (OSError, http.client.HTTPException) as error:
            trouble, asked, transient = str(error) or type(error).__name__, 0.0, True
            continue
        if status in (200, 201):
            return _decoded(address, answer)
        said = answer.decode("utf-8", "replace")
        trouble = f"status {status}: {(said.replace(key, '[key]') if key else said)[:300]}"
        transient = status in TRY_AGAIN
        if not transient:
            break
    raise EvaluationError(
        f"{address.url}{path} gave no answer: {trouble}",
        hint="The evaluator's `url` is where it asks: check it, and the server there",
        transient=transient,
    )


def _once(address: Address, path: str, data: bytes, headers: Mapping[str, str]) -> tuple[int, bytes, float]:
    """Status, body and the seconds of `Retry-After` of one try."""
    deadline = time.monotonic() + address.seconds
    parts = urlsplit(address.url)
    secure = parts.scheme == "https"
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    host = parts.hostname or ""
    connection = kind(host, parts.port)
    with _connected(host, connection.port, deadline, secure=secure) as sock:
        timed: Any = _Timed(sock, deadline)
        connection.sock = timed
        connection.request("POST", parts.path.rstrip("/") + path, data, dict(headers))
        with connection.getresponse() as response:
            body = bytearray()
            while piece := response.read1(_CHUNK):
                body += piece
                if len(body) > address.max_bytes:
                    raise EvaluationError(f"{address.url}{path} answers with over {address.max_bytes} bytes")
            if response.length:
                raise http.client.IncompleteRead(bytes(body), response.length)
            after = response.headers.get("Retry-After", "")
            return response.status, bytes(body), float(after) if after.isdecimal() else 0.0


def _connected(host: str, port: int, deadline: float, *, secure: bool) -> socket.socket:
    """A connection to the first of the host's addresses that takes one; each has its share of the time."""
    places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    trouble: OSError | None = None
    for tried, (family, kind, protocol, _, place) in enumerate(places):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(_left(deadline) / (len(places) - tried))
            sock.connect(place)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not secure:
                return sock
            sock.settimeout(_left(deadline))
            return _trusted().wrap_socket(sock, server_hostname=host)
        except OSError as error:
            sock.close()
            trouble = error
    raise trouble or OSError(f"{host} has no address")


@functools.cache
def _trusted() -> ssl.SSLContext:
    return ssl.create_default_context()


class _Timed:
    """A socket as `http.client` uses it, of which every single read ends at the deadline.

    A time-out of the socket alone begins anew with each byte, so that whoever sends them slowly is never left.
    """

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(_left(self._deadline))
        self._sock.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reading(self._sock, self._deadline))

    def close(self) -> None:
        """Nothing: where the answer says that the server closes, its body is still to be read."""


class _Reading(io.RawIOBase):
    def __init__(self, sock: socket.socket, deadline: float) -> None:
        super().__init__()
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(_left(self._deadline))
        return self._sock.recv_into(buffer)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("it did not answer in time")
    return left


def _decoded(address: Address, answer: bytes) -> Any:
    try:
        return exact_json.decode(answer)
    except msgspec.DecodeError as error:
        raise EvaluationError(f"{address.url} answers with what is no JSON: {error}") from None
