"""Every fault of the control API as `{"error": {"code", "message", "path", "hint"}}`."""

from __future__ import annotations

from typing import Any, ClassVar

import structlog
from litestar import MediaType, Request, Response
from litestar.exceptions import HTTPException, ValidationException

from agentworld.errors import (
    AgentWorldError,
    BusyError,
    InvalidRequestError,
    NotFoundError,
    TooLargeError,
)

logger = structlog.get_logger("agentworld.api")
RETRY_SECONDS = 5
"""Who is told that the server is busy is asked to come again after so long."""


class MethodNotAllowedError(AgentWorldError):
    """The route is there, but not for this method."""

    code: ClassVar[str] = "method_not_allowed"
    status: ClassVar[int] = 405


def translate(request: Request[Any, Any, Any], error: Exception) -> AgentWorldError:
    """The error of ours that says what `error` says."""
    if isinstance(error, AgentWorldError):
        return error
    where = f"{request.method} {request.scope['path'][:200]}"
    if isinstance(error, ValidationException):
        first = next(iter(error.extra or []), None)
        fields = first if isinstance(first, dict) else {}
        name = fields.get("key")
        path = f"?{name}" if name and fields.get("source") == "query" else name
        return InvalidRequestError(str(fields.get("message", error.detail)), path=path)
    if isinstance(error, HTTPException):
        if error.status_code == 404:
            return NotFoundError(f"There is no route {where}", hint="See /api/docs for the routes")
        if error.status_code == 405:
            return MethodNotAllowedError(f"{where} is not a route", hint="See /api/docs for its methods")
        if error.status_code == 413:
            return TooLargeError("The body is over the limit", hint="Send less at once, or raise max_body_bytes")
        if 400 <= error.status_code < 500:
            return InvalidRequestError(error.detail)
    logger.error("request failed", route=where, exc_info=error)
    return AgentWorldError("The server failed on this request", hint="Its log has the details")


def respond(request: Request[Any, Any, Any], error: Exception) -> Response[dict[str, Any]]:
    """The exception handler of the application."""
    ours = translate(request, error)
    headers = {"Retry-After": str(RETRY_SECONDS)} if isinstance(ours, BusyError) else {}
    return Response(ours.to_dict(), status_code=ours.status, media_type=MediaType.JSON, headers=headers)
