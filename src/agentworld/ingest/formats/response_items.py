"""Items of OpenAI's Responses -> messages and replies, with what each reply's items say beside their text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from agentworld.ingest.formats.chat_messages import ChatReader
from agentworld.ingest.formats.completion_facts import LOGPROBS, PROMPT_IDS, REPLY_IDS, ids_of
from agentworld.ingest.formats.noted import kind_of
from agentworld.records import Message, TextPart, ToolCall

_NAMED = ("function_call", "custom_tool_call", "mcp_call")
_ABOUT = frozenset(("id", "type", "status", "call_id", "output", *PROMPT_IDS, *REPLY_IDS, *LOGPROBS))


class Turn(msgspec.Struct):
    """One message; `facts`: fields of its step where it is a reply that an engine gave with ids."""

    message: Message
    place: str
    facts: dict[str, Any] = {}


class _Reply:
    def __init__(self, place: str) -> None:
        self.place = place
        self.thoughts: list[str] = []
        self.since: list[str] = []  # what was thought after the last text or call
        self.content: Any = None
        self.has_text = False
        self.calls: list[ToolCall] = []
        self.results: list[Turn] = []
        self.facts: dict[str, Any] = {}


class ItemReader:
    """Reads items in order. Those of one reply (reasoning, text, calls) are one message of the assistant: up to the
    item that has the reply's ids, the first output, the next turn, or a second text. `one_reply`: they are all of one
    answer, so that several texts are parts of it.
    """

    def __init__(self, reader: ChatReader, *, one_reply: bool = False) -> None:
        self.turns: list[Turn] = []
        self._one_reply = one_reply
        self._reader = reader
        self._values = reader.values
        self._reply: _Reply | None = None

    def read(self, items: list[Any], place: str) -> None:
        """Read items; what is none is noted and left out."""
        for number, item in enumerate(items):
            where = f"{place}[{number}]"
            if not isinstance(item, dict):
                self._values.lost(where, f"an item must be an object, not {kind_of(item)}")
                continue
            self._item(item, where)

    def close(self) -> None:
        """End the reply that is being read."""
        reply, self._reply = self._reply, None
        if reply is None:
            return
        message = Message(
            role="assistant",
            content=reply.content,
            reasoning="\n\n".join([*reply.thoughts, *reply.since]) if reply.thoughts or reply.since else None,
            tool_calls=tuple(reply.calls),
        )
        self.turns.append(Turn(message, reply.place, reply.facts))
        self.turns += reply.results

    def _item(self, item: Mapping[str, Any], place: str) -> None:
        kind = item.get("type")
        if kind == "reasoning":
            self._open(place).since += self._thoughts(item, place)
        elif isinstance(kind, str) and kind.endswith("_call"):
            reply = self._open(place)
            reply.thoughts += reply.since
            reply.since = []
            self._call(reply, kind, item, place)
        elif isinstance(kind, str) and kind.endswith("_call_output"):
            self.close()
            self._output(item, place)
        elif kind == "message" or "role" in item:
            self._message(item, place)
        else:
            self.close()
            self._values.lost(place, f"an item of the type {str(kind)[:60]!r} is not read")
            return
        self._ids(item, place)

    def _ids(self, item: Mapping[str, Any], place: str) -> None:
        if self._reply is None:
            return
        if any(item.get(name) is not None for name in (*PROMPT_IDS, *REPLY_IDS)):
            self._reply.facts = ids_of(item, self._values, place)
            self.close()

    def _open(self, place: str) -> _Reply:
        if self._reply is None:
            self._reply = _Reply(place)
        return self._reply

    def _message(self, item: Mapping[str, Any], place: str) -> None:
        role = item.get("role")
        if role != "assistant":
            self.close()
            given = {"role": role, "content": item.get("content"), "name": item.get("name")}
            self.turns.append(Turn(self._reader.message(given, place), place))
            return
        reply = self._open(place)
        if reply.has_text and not self._one_reply:
            since, reply.since = reply.since, []
            self.close()
            reply = self._open(place)
            reply.since = since
        reply.thoughts += reply.since
        reply.since = []
        given = {"role": "assistant", **{key: item[key] for key in _OF_REPLY if item.get(key) is not None}}
        message = self._reader.message(given, place)
        both = (*_parts(reply.content), *_parts(message.content))
        reply.content = both if reply.has_text and both else message.content
        reply.has_text = True
        reply.calls += message.tool_calls
        if message.reasoning is not None:
            reply.thoughts.append(message.reasoning)

    def _thoughts(self, item: Mapping[str, Any], place: str) -> list[str]:
        found = []
        for key in ("content", "summary"):
            for part in self._values.items(item, key, place) or ():
                text = part.get("text") if isinstance(part, dict) else part
                if isinstance(text, str):
                    found.append(text)
            if found:
                break
        if not found and item.get("encrypted_content"):
            self._values.said(place, "what was thought is encrypted, and left out")
        return found

    def _call(self, reply: _Reply, kind: str, item: Mapping[str, Any], place: str) -> None:
        """A call; of a tool that the service has built in the kind of the item is the name, and its fields are the
        arguments.
        """
        name, given = item.get("name"), item.get("arguments", item.get("input"))
        if kind not in _NAMED:
            name = kind.removesuffix("_call")
            given = item.get("action", {key: value for key, value in item.items() if key not in _ABOUT})
        if not isinstance(name, str):
            self._values.lost(place, "a call needs the name of a function; it is left out")
            return
        call_id = next((item[key] for key in ("call_id", "id") if isinstance(item.get(key), str)), None)
        call = self._reader.call(name, given, call_id)
        reply.calls.append(call)
        if item.get("output") is not None:
            # The service ran it within the reply, so that its result stands behind that.
            given = {"role": "tool", "content": item["output"], "tool_call_id": call.id}
            reply.results.append(Turn(self._reader.message(given, place), place))

    def _output(self, item: Mapping[str, Any], place: str) -> None:
        given = {"role": "tool", "content": item.get("output"), "tool_call_id": item.get("call_id")}
        self.turns.append(Turn(self._reader.message(given, place), place))


_OF_REPLY = ("content", "name", "reasoning_content", "reasoning", "tool_calls")


def _parts(content: Any) -> tuple[Any, ...]:
    if isinstance(content, str):
        return (TextPart(content),)
    return content or ()


def as_chat(tools: Any) -> Any:
    """Tools of Responses, which have their function's fields beside the type, as chat describes them."""
    if not isinstance(tools, list):
        return tools
    return [
        {"type": "function", "function": {key: value for key, value in tool.items() if key != "type"}}
        if isinstance(tool, dict) and tool.get("type") == "function" and "function" not in tool
        else tool
        for tool in tools
    ]
