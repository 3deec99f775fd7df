"""What goes wrong between here and an engine, before it is known for whose call."""

from __future__ import annotations


class ConnectError(Exception):
    """No connection could be made."""


class BrokenError(Exception):
    """The connection ended, or what came is not HTTP. `begun`: a byte of a reply had come."""

    def __init__(self, message: str, *, begun: bool) -> None:
        super().__init__(message)
        self.begun = begun
