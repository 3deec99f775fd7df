"""OpenAI Responses: reply -> response body or stream events.

In a stream, reasoning and text go out as they come, each run of them as an item of its own. Calls go out whole at the
end: clients act on a call as soon as its item is done, and it must be on record by then.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from agentworld.dialects.chat_reply import error_body
from agentworld.dialects.exchange import Choice, Delta, Reply, Request
from agentworld.dialects.responses import NOTES, PREFIX
from agentworld.dialects.responses_items import item_id
from agentworld.dialects.responses_output import call_item, message_item, output_items, reasoning_item
from agentworld.dialects.responses_tools import Named
from agentworld.errors import AgentWorldError
from agentworld.records import Usage

_encode = msgspec.json.Encoder().encode
_CUT = {"length": "max_output_tokens", "content_filter": "content_filter"}


def names_of(request: Request) -> Named:
    """The names of the request's tools that are not plain functions."""
    named: Named = request.notes.get(NOTES, {}).get("named", {})
    return named


def is_summarized(request: Request) -> bool:
    """Whether the caller asked for a summary of the reasoning: it gets all of it."""
    return bool((request.echo.get("reasoning") or {}).get("summary"))


def envelope(
    request: Request, reply_id: str, model: str, created: int, status: str, output: list[dict[str, Any]], **more: Any
) -> dict[str, Any]:
    """The response object around its items. The sampling is the one in force, which settings may have changed."""
    sampling = request.sampling
    echo = {name: value for name, value in request.echo.items() if name != "sealed"}
    return {
        "id": reply_id,
        "object": "response",
        "created_at": created,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "max_output_tokens": sampling.max_tokens,
        "max_tool_calls": None,
        "model": model,
        "output": output,
        "service_tier": "default",
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "truncation": "disabled",
        "usage": None,
        **echo,
        **more,
    }


def usage_body(usage: Usage | None) -> dict[str, Any] | None:
    """Token counts as the API reports them; engines do not say how many were reasoning."""
    if usage is None:
        return None
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def _ended(request: Request, reply: Reply, output: list[dict[str, Any]]) -> dict[str, Any]:
    """The response of a reply that is on record."""
    cut = _CUT.get(reply.choices[0].finish_reason)
    return envelope(
        request,
        reply.reply_id,
        reply.model,
        reply.created,
        "incomplete" if cut else "completed",
        output,
        incomplete_details={"reason": cut} if cut else None,
        usage=usage_body(reply.usage),
    )


def _is_whole(choice: Choice) -> bool:
    return choice.finish_reason not in _CUT


def response_body(request: Request, reply: Reply) -> dict[str, Any]:
    """The body of a plain reply."""
    choice = reply.choices[0]
    output = output_items(
        choice.message,
        reply.reply_id.removeprefix(PREFIX),
        names_of(request),
        sealed=bool(request.echo.get("sealed")),
        summarized=is_summarized(request),
        entries=choice.entries if request.logprobs else None,
        whole=_is_whole(choice),
        runs=choice.runs,
    )
    return _ended(request, reply, output)


class _Part(NamedTuple):
    """How the text of an item is told: the part that holds it, and the names of its events."""

    holder: str
    counter: str
    part_events: str
    text_events: str


_PARTS = {
    "message": _Part("content", "content_index", "content_part", "output_text"),
    "reasoning": _Part("content", "content_index", "content_part", "reasoning_text"),
    "summary": _Part("summary", "summary_index", "reasoning_summary_part", "reasoning_summary_text"),
}


class ResponsesStream:
    """Events of one streamed reply. `delta` may be sent at once; `finish` only after the reply is durable."""

    def __init__(self, request: Request, reply_id: str, model: str, created: int) -> None:
        self._request = request
        self._reply_id = reply_id
        self._exchange_id = reply_id.removeprefix(PREFIX)
        self._facts = (request, reply_id, model, created)
        self._sealed = bool(request.echo.get("sealed"))
        self._thinking = "summary" if is_summarized(request) else "reasoning"
        self._number = 0
        self._items: list[dict[str, Any]] = []
        self._open: str | None = None
        self._delta_head = b""
        self._text: list[str] = []
        self._entries: list[dict[str, Any]] = []
        self._shown_entries = 0

    def _event(self, kind: str, **fields: Any) -> bytes:
        data = _encode({"type": kind, **fields, "sequence_number": self._number})
        self._number += 1
        return f"event: {kind}\ndata: ".encode() + data + b"\n\n"

    def delta(self, delta: Delta) -> bytes:
        """The events for one piece, without calls and the end; b"" where it says nothing to this caller."""
        if not (self._number or delta.text or delta.reasoning or delta.tool_calls or delta.ids):
            return b""
        out = self._begin()
        if delta.reasoning and self._open == "message":
            out += self._close("completed")  # The log-probabilities are those of what comes.
        if delta.entries and self._request.logprobs:
            self._entries.extend(delta.entries)
        if delta.reasoning:
            out += self._piece(self._thinking, delta.reasoning)
        if delta.text:
            out += self._piece("message", delta.text)
        return out

    def finish(self, reply: Reply) -> bytes:
        """The calls, the end of the items, and the whole response."""
        choice = reply.choices[0]
        calls = choice.message.tool_calls
        whole = _is_whole(choice)
        out = self._begin()
        if not calls and not self._items and self._open is None:
            out += self._start("message")
        out += self._close("completed" if whole or calls else "incomplete")
        for place, call in enumerate(calls):
            status = "completed" if whole or place + 1 < len(calls) else "incomplete"
            out += self._call(call_item(self._exchange_id, len(self._items), call, names_of(self._request), status))
        response = _ended(self._request, reply, self._items)
        return out + self._event(f"response.{response['status']}", response=response)

    def fail(self, error: AgentWorldError) -> bytes:
        """What ends the stream of a call that failed."""
        said = error_body(error)["error"]
        fault = {"code": said["code"], "message": said["message"]}
        response = envelope(*self._facts, "failed", self._items, error=fault)
        return self._begin() + self._event("response.failed", response=response)

    def _begin(self) -> bytes:
        if self._number:
            return b""
        response = envelope(*self._facts, "in_progress", [])
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def _piece(self, kind: str, text: str) -> bytes:
        out = b""
        if self._open != kind:
            out += self._close("completed") + self._start(kind)
        self._text.append(text)
        tail = b""
        if kind == "message":
            entries, self._shown_entries = self._entries[self._shown_entries :], len(self._entries)
            tail = b',"logprobs":' + _encode(entries)
        number = self._number
        self._number += 1
        # The bulk of a stream: what is the same in each is written once.
        return out + self._delta_head + _encode(text) + tail + b',"sequence_number":%d}\n\n' % number

    def _place(self) -> dict[str, Any]:
        index = len(self._items)
        kind = "msg" if self._open == "message" else "rs"
        return {"item_id": item_id(kind, self._exchange_id, index), "output_index": index}

    def _item(self, text: str, status: str) -> dict[str, Any]:
        """The open item."""
        index = len(self._items)
        if self._open == "message":
            return message_item(self._exchange_id, index, text, status, self._entries)
        sealed = self._sealed and status != "in_progress"
        return reasoning_item(self._exchange_id, index, text, sealed, self._open == "summary")

    def _start(self, kind: str) -> bytes:
        self._open = kind
        part = _PARTS[kind]
        place = {**self._place(), part.counter: 0}
        name = f"response.{part.text_events}.delta"
        self._delta_head = f"event: {name}\ndata: ".encode() + _encode({"type": name, **place})[:-1] + b',"delta":'
        item = self._item("", "in_progress")
        (empty,) = item[part.holder]
        if kind == "message":
            empty = {**empty, "logprobs": []}
        return self._event(
            "response.output_item.added", output_index=len(self._items), item={**item, part.holder: []}
        ) + self._event(f"response.{part.part_events}.added", **place, part=empty)

    def _close(self, status: str) -> bytes:
        """End the open item, if there is one."""
        if self._open is None:
            return b""
        part, text = _PARTS[self._open], "".join(self._text)
        place = {**self._place(), part.counter: 0}
        item = self._item(text, status)
        more = {"logprobs": self._entries} if self._open == "message" else {}
        out = self._event(f"response.{part.text_events}.done", **place, text=text, **more)
        out += self._event(f"response.{part.part_events}.done", **place, part=item[part.holder][0])
        if self._open == "message":
            self._entries, self._shown_entries = [], 0
        self._open, self._text = None, []
        return out + self._done(item)

    def _done(self, item: dict[str, Any]) -> bytes:
        self._items.append(item)
        return self._event("response.output_item.done", output_index=len(self._items) - 1, item=item)

    def _call(self, item: dict[str, Any]) -> bytes:
        name = "input" if item["type"] == "custom_tool_call" else "arguments"
        kind = "custom_tool_call_input" if name == "input" else "function_call_arguments"
        place = {"item_id": item["id"], "output_index": len(self._items)}
        text = item[name]
        out = self._event(
            "response.output_item.added",
            output_index=len(self._items),
            item={**item, "status": "in_progress", name: ""},
        )
        if text:
            out += self._event(f"response.{kind}.delta", **place, delta=text)
        more = {"name": item["name"]} if name == "arguments" else {}
        return out + self._event(f"response.{kind}.done", **place, **{name: text}, **more) + self._done(item)


def error_event(error: AgentWorldError) -> bytes:
    """The event for a call that failed before its stream had a response."""
    said = error_body(error)["error"]
    fields = {"code": said["code"], "message": said["message"], "param": said["param"], "sequence_number": 0}
    return b"event: error\ndata: " + msgspec.json.encode({"type": "error", **fields}) + b"\n\n"
