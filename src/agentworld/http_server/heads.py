"""What is written around the bodies of answers: heads, and how a body's end is told."""

from __future__ import annotations

import functools
import http
import time
from collections.abc import MutableMapping
from email.utils import formatdate
from typing import Any

Message = MutableMapping[str, Any]

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
BODILESS = frozenset((204, 304))
"""Statuses whose answers have no body."""


class Framing:
    """How the end of one answer's body is told. `length`: bytes as declared, or None; `chunked`: in pieces that say
    their lengths; `bodiless`: what is given as its body is not sent; `closes`: the connection ends with it.
    """

    __slots__ = ("_left", "bodiless", "chunked", "closes", "length")

    def __init__(self, length: int | None, *, chunked: bool, bodiless: bool, closes: bool) -> None:
        self.length = length
        self._left = length
        self.chunked = chunked
        self.bodiless = bodiless
        self.closes = closes

    def piece(self, data: bytes, *, last: bool) -> bytes:
        """A piece of the body as it goes to the client. RuntimeError where more or less comes than was declared."""
        if self.bodiless:
            return b""
        if self._left is not None:
            self._left -= len(data)
            if self._left < 0 or (last and self._left):
                raise RuntimeError(f"a body has not the declared length of {self.length} bytes")
            return data
        if not self.chunked:
            return data
        chunk = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
        return chunk + b"0\r\n\r\n" if last else chunk


def framed_head(start: Message, request: Message, lasts: bool) -> tuple[bytes, Framing]:
    """The head of an answer and the framing of its body. `lasts`: whether the connection may serve another request.
    ValueError for what would be read as other headers than the application gave.
    """
    status: int = start["status"]
    length: int | None = None
    dated = chunked = False
    lines = [_status_line(status)]
    for name, value in start.get("headers", ()):
        known = name.lower()
        if known == b"content-length":
            if length is not None or not value.isdigit():
                raise ValueError("the answer's content-length is no number of bytes, or there are two")
            if status == 204:
                continue
            length = int(value)
        elif known == b"connection":
            lasts = lasts and value.lower() != b"close"
            continue
        elif known == b"transfer-encoding":
            continue  # It is the server's to say.
        elif known == b"date":
            dated = True
        lines.append(b"%b: %b" % (name, value))
    bodiless = request["method"] == "HEAD" or status in BODILESS
    old = request["http_version"] == "1.0"
    if length is None and not bodiless:
        chunked = not old
        lasts = lasts and chunked
        if chunked:
            lines.append(b"transfer-encoding: chunked")
    if not dated:
        lines.append(_date(int(time.time())))
    if not lasts:
        lines.append(b"connection: close")
    elif old:
        lines.append(b"connection: keep-alive")
    head = b"\r\n".join(lines)
    if head.count(b"\n") != len(lines) - 1 or head.count(b"\r") != len(lines) - 1:
        raise ValueError("a header of the answer holds a line break")
    return head + b"\r\n\r\n", Framing(length, chunked=chunked, bodiless=bodiless, closes=not lasts)


@functools.cache
def _status_line(status: int) -> bytes:
    if not 200 <= status <= 999:
        raise ValueError(f"{status} is not the status of an answer")
    try:
        phrase = http.HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return b"HTTP/1.1 %d %b" % (status, phrase.encode())


@functools.lru_cache(2)
def _date(second: int) -> bytes:
    return b"date: " + formatdate(second, usegmt=True).encode()
