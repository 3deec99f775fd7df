"""What the gateway asks of an API's dialect, and which dialect speaks on which route."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from agentworld.dialects import (
    chat,
    chat_reply,
    completions,
    completions_reply,
    messages,
    messages_reply,
    quick_chat,
    responses,
    responses_reply,
)
from agentworld.dialects.exchange import Delta, Reply, Request
from agentworld.errors import AgentWorldError


class Events(Protocol):
    """Events of one streamed reply. `delta` may be sent at once; `finish` only after the reply is durable."""

    def delta(self, delta: Delta) -> bytes:
        """The events for one piece; b"" where it says nothing to this caller."""

    def finish(self, reply: Reply) -> bytes:
        """What ends the stream."""

    def fail(self, error: AgentWorldError) -> bytes:
        """What ends the stream of a call that failed."""


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """One API as pure functions.

    `quick` reads usual bodies at once, without `raw`, and with those fields that say whose call it is; None for what
    `parse` has to read.
    `events` takes the request, the reply's id, the model's name and the time of creation. `error_event` ends a stream
    that has begun. `ping` keeps a silent stream open. `reply_prefix` begins the ids of replies.
    """

    name: str
    reply_prefix: str
    parse: Callable[[dict[str, Any]], Request]
    quick: Callable[[bytes], tuple[Request, dict[str, Any]] | None] | None = None
    response_body: Callable[[Request, Reply], dict[str, Any]]
    events: Callable[[Request, str, str, int], Events]
    error_body: Callable[[AgentWorldError], dict[str, Any]]
    error_event: Callable[[AgentWorldError], bytes]
    ping: bytes


CHAT = Dialect(
    name=chat.DIALECT,
    reply_prefix="chatcmpl-",
    parse=chat.parse,
    quick=quick_chat.read,
    response_body=chat_reply.response_body,
    events=chat_reply.ChatStream,
    error_body=chat_reply.error_body,
    error_event=chat_reply.error_event,
    # A comment and one line end: a blank line would be an event to some clients.
    ping=b": ping\n",
)
MESSAGES = Dialect(
    name=messages.DIALECT,
    reply_prefix="msg_",
    parse=messages.parse,
    response_body=messages_reply.response_body,
    events=messages_reply.MessagesStream,
    error_body=messages_reply.error_body,
    error_event=messages_reply.error_event,
    ping=messages_reply.PING,
)
COMPLETIONS = Dialect(
    name=completions.DIALECT,
    reply_prefix="cmpl-",
    parse=completions.parse,
    response_body=completions_reply.response_body,
    events=completions_reply.CompletionsStream,
    error_body=chat_reply.error_body,
    error_event=chat_reply.error_event,
    ping=CHAT.ping,
)
RESPONSES = Dialect(
    name=responses.DIALECT,
    reply_prefix=responses.PREFIX,
    parse=responses.parse,
    response_body=responses_reply.response_body,
    events=responses_reply.ResponsesStream,
    error_body=chat_reply.error_body,
    error_event=responses_reply.error_event,
    ping=CHAT.ping,
)
BY_ROUTE = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": COMPLETIONS,
    "/v1/messages": MESSAGES,
    "/v1/messages/count_tokens": MESSAGES,
    "/v1/responses": RESPONSES,
}


def dialect_at(path: str) -> Dialect:
    """The dialect in which a path is answered that may be no route at all."""
    return MESSAGES if "/messages" in path else RESPONSES if "/responses" in path else CHAT
