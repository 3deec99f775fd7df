"""What a client is told of what the server cannot serve, in place of an application's answer."""

from __future__ import annotations

import traceback

import httptools
import structlog

from agentworld.errors import AgentWorldError, InvalidRequestError

log = structlog.get_logger("agentworld.http")
MAX_HEAD = 64 * 1024
"""Bytes of a request's line and headers."""
MAX_HEADERS = 128


class HeadTooLargeError(AgentWorldError):
    """A request's line and headers are over the limit."""

    code = "head_too_large"
    status = 431


def too_large() -> HeadTooLargeError:
    """The error of a request whose head is over the limits."""
    return HeadTooLargeError(
        f"the head of the request is over {MAX_HEAD} bytes or {MAX_HEADERS} headers", hint="Send less in its headers"
    )


def failed() -> AgentWorldError:
    """The error of a request that the server could not answer, by a fault of its own."""
    return AgentWorldError("The server failed on this request", hint="Its log has the details")


def refusal(fault: Exception) -> AgentWorldError:
    """The error for what the parser found, or for what was raised in what it called."""
    if isinstance(fault, AgentWorldError):
        return fault
    if not isinstance(fault, httptools.HttpParserCallbackError):
        return InvalidRequestError(f"This is no request of HTTP/1.1: {fault}")
    raised = fault.__context__
    if isinstance(raised, AgentWorldError):
        return raised
    # Places and the type alone: messages can hold what users wrote.
    places = "".join(traceback.format_tb(raised.__traceback__)) if raised is not None else ""
    log.error("request_failed", error=type(raised).__name__, places=places)
    return failed()
