"""One base error; each subclass is a stable code with its HTTP status.

The message says what is wrong, `path` where (a JSON path or file position), `hint` what to do.
"""

from __future__ import annotations

from typing import Any, ClassVar


class AgentWorldError(Exception):
    """A fault of ours that has no narrower class."""

    code: ClassVar[str] = "internal_error"
    status: ClassVar[int] = 500

    def __init__(self, message: str, *, path: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.hint = hint

    def __str__(self) -> str:
        """As `one_line`, so that a traceback says what to do."""
        return self.one_line()

    def to_dict(self) -> dict[str, Any]:
        """The control API's error body: ``{"error": {"code", "message", "path", "hint"}}``."""
        return {"error": {"code": self.code, "message": self.message, "path": self.path, "hint": self.hint}}

    def one_line(self) -> str:
        """The error as the command line prints it: message, place, what to do."""
        where = f" (at {self.path})" if self.path else ""
        return _sentences(self.message.removesuffix(".") + where if where else self.message, self.hint)

    def advice(self) -> str:
        """Message and what to do, for bodies that have a field of their own for the place."""
        return _sentences(self.message, self.hint)


def _sentences(said: str, hint: str | None) -> str:
    """Both, with one stop between them: messages of engines, and those that quote others, may end in one."""
    if not hint:
        return said
    return f"{said} {hint}" if said.endswith((".", "!", "?")) else f"{said}. {hint}"


class InvalidRequestError(AgentWorldError):
    """The caller sent something that cannot be taken."""

    code = "invalid_request"
    status = 400


class ConfigError(InvalidRequestError):
    """A configuration file, option or environment variable is wrong or missing."""

    code = "invalid_config"


class QueryError(InvalidRequestError):
    """A `where` expression or a cursor cannot be read, or a search takes too long."""

    code = "invalid_query"


class ContextLengthError(InvalidRequestError):
    """The prompt and the reply asked for are longer than the engine takes."""

    code = "context_length_exceeded"


class UnauthorizedError(AgentWorldError):
    """No key, or one that does not hold."""

    code = "unauthorized"
    status = 401


class ForbiddenError(AgentWorldError):
    """This caller may not do this: its key does not reach that far, or the server does not answer to this host, or not
    to pages of this site.
    """

    code = "forbidden"
    status = 403


class NotFoundError(AgentWorldError):
    """No such record or route."""

    code = "not_found"
    status = 404


class GoneError(NotFoundError):
    """The record was deleted on request, and does not come back."""

    code = "gone"
    status = 410


class ConflictError(AgentWorldError):
    """The same id was used for different content."""

    code = "conflict"
    status = 409


class StaleLeaseError(ConflictError):
    """The lease has ended or was handed to another consumer; its epoch is old."""

    code = "stale_lease"


class RequestTimeoutError(AgentWorldError):
    """The caller took too long to send its request."""

    code = "request_timeout"
    status = 408


class MediaTypeError(AgentWorldError):
    """The body is of another type than the route takes."""

    code = "unsupported_media_type"
    status = 415


class TooLargeError(AgentWorldError):
    """A body is over the limit."""

    code = "too_large"
    status = 413


class BusyError(AgentWorldError):
    """Too many requests of this kind wait already."""

    code = "busy"
    status = 429


class EngineError(AgentWorldError):
    """The engine answered with an error or with something that cannot be used."""

    code = "engine_error"
    status = 502


class EngineUnreachableError(EngineError):
    """Nothing answers at the engine's address."""

    code = "engine_unreachable"
    status = 503


class PausedError(AgentWorldError):
    """The gateway is paused and takes no new calls."""

    code = "paused"
    status = 503


class EndingError(AgentWorldError):
    """The server is shutting down."""

    code = "shutting_down"
    status = 503


class PoolError(AgentWorldError):
    """The pool could not be read or written."""

    code = "pool_error"
    status = 503


class PoolFullError(PoolError):
    """The disk that holds the pool is full; nothing was written."""

    code = "pool_full"
    status = 507
