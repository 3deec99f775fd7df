"""Items of Codex's conversations -> messages.

Items of one reply (reasoning, text, calls) are one message of the assistant, up to the first output, the next turn, or
the count of its tokens. Reasoning that is encrypted is counted and left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from agentworld.dialects.responses_tools import flat_name
from agentworld.ingest.formats.values import (
    Content,
    Media,
    Say,
    bounded,
    content_of,
    json_text,
    list_of,
    name_of,
    object_of,
    ordered_results,
    text_of,
)
from agentworld.records import FunctionCall, MediaPart, Message, Role, TextPart, ToolCall, Usage

KINDS = frozenset(
    {
        "agent_message", "custom_tool_call", "custom_tool_call_output", "function_call", "function_call_output",
        "ghost_snapshot", "image_generation_call", "local_shell_call", "mcp_tool_call", "mcp_tool_call_output",
        "message", "reasoning", "tool_search_call", "tool_search_output", "web_search_call",
    }
)  # fmt: skip
_OPAQUE = frozenset({"compaction", "compaction_summary", "compaction_trigger", "context_compaction", "ghost_snapshot"})
_ROLES: dict[str, Role] = {name: name for name in ("system", "developer", "user")}


class Reply:
    """One reply while its items are read. `at`: when it began. `answered`: an output of one of its calls has come."""

    def __init__(self, place: str, at: float) -> None:
        self.place = place
        self.at = at
        self.turn: str | None = None
        self.answered = False
        self.parts: list[TextPart | MediaPart] = []
        self.thoughts: list[str] = []
        self.calls: list[ToolCall] = []
        self.encrypted = 0
        self.usage: Usage | None = None

    def message(self) -> Message:
        """Text is one string, however many items it had."""
        content: Content | None = None
        if any(isinstance(part, MediaPart) for part in self.parts):
            content = tuple(self.parts)
        elif self.parts or not self.calls:
            content = "".join(part.text for part in self.parts if isinstance(part, TextPart))
        reasoning = "\n\n".join(self.thoughts) or None
        return Message(role="assistant", content=content, reasoning=reasoning, tool_calls=tuple(self.calls))


OnReply = Callable[[Reply, Message, list[Message]], str | None]
"""Takes a reply, its message and what stood before it; gives the key of its step."""


class Items:
    """A conversation while its items are read. `messages`: what the model sees next; `steps`: of each of them the key
    of the step that said it.
    """

    def __init__(self, say: Say, media: Media, on_reply: OnReply | None = None) -> None:
        self._say = say
        self._media = media
        self._on_reply = on_reply
        self._reply: Reply | None = None
        self._results: list[Message] = []
        self._made = 0
        self._pending: dict[str, None] = {}  # calls without an output, in order
        self._calls: list[str] = []  # of the last reply
        self.messages: list[Message] = []
        self.steps: list[str | None] = []
        self.skipped: Counter[str] = Counter()

    @property
    def reply(self) -> Reply | None:
        """The reply that is being read."""
        return self._reply

    def read(self, item: dict[str, Any], place: str, at: float = 0.0) -> None:
        """Read one item."""
        kind = item.get("type")
        if kind == "message" or (kind is None and "role" in item):
            self._message(item, place, at)
        elif kind == "reasoning":
            self._reasoning(item, place, at)
        elif kind == "agent_message":
            self.close()
            said = self.content(item.get("content"), place)
            self.add(Message(role="user", content=said, name=name_of(item.get("author"))))
        elif isinstance(kind, str) and kind in _OPAQUE:
            self.skipped[f"item/{kind}"] += 1
        elif isinstance(kind, str) and kind.endswith("_output"):
            self._output(item, place, at)
        elif isinstance(kind, str) and kind.endswith("_call"):
            self._call(kind, item, place, at)
        else:
            self._say(place, f"an item cannot be read: {_named(item)}")

    def add(self, message: Message) -> None:
        """Put a message behind what is there."""
        self.messages.append(message)
        self.steps.append(None)

    def close(self) -> None:
        """End the reply that is being read."""
        reply, self._reply = self._reply, None
        if reply is not None and (reply.parts or reply.calls or reply.thoughts):
            message = reply.message()
            step = self._on_reply(reply, message, list(self.messages)) if self._on_reply is not None else None
            self.messages.append(message)
            self.steps.append(step)
            self._calls = [call.id for call in reply.calls]
        elif reply is not None and reply.encrypted:
            self.skipped["item/reasoning that is encrypted alone"] += 1
        for result in ordered_results(self._results, self._calls):
            self.add(result)
        self._results = []

    def text(self, text: str, place: str, at: float) -> None:
        """Text of a reply."""
        self._open(place, at).parts.append(TextPart(text=text))

    def thought(self, text: str, place: str, at: float) -> None:
        """Reasoning of a reply."""
        self._open(place, at).thoughts.append(text)

    def call(self, name: str, arguments: str, place: str, at: float, call_id: str | None = None) -> str:
        """A call of a reply; its id."""
        if call_id is None:
            self._made += 1
            call_id = f"call_{self._made}"
        self._open(place, at).calls.append(ToolCall(id=call_id, function=FunctionCall(name, arguments)))
        self._pending[call_id] = None
        return call_id

    def result(self, call_id: str | None, content: Content, place: str, *, within: bool = False) -> None:
        """A result of a call; `within`: it came within the reply, as the service ran the call."""
        if call_id is None and self._pending:
            call_id = next(iter(self._pending))
        if call_id in self._pending:
            del self._pending[call_id]
        elif call_id is not None:
            self._say(place, f"no call before it has the id {bounded(call_id, 60)} of this output", lost=False)
        self._results.append(Message(role="tool", content=content, tool_call_id=call_id))
        if self._reply is not None and not within:
            self._reply.answered = True

    def content(self, value: Any, place: str) -> Content:
        """Text or parts; what cannot be read otherwise stands as its JSON."""
        if isinstance(value, str):
            return value
        if value is None:
            return ""
        if isinstance(value, dict):
            if isinstance(value.get("text"), str):
                return str(value["text"])
            inner = value.get("content", value.get("content_items"))
            return self.content(inner, place) if isinstance(inner, (str, list)) else json_text(value)
        if not isinstance(value, list):
            return json_text(value)
        return content_of(self._parts(value, place))

    def _parts(self, value: list[Any], place: str) -> list[TextPart | MediaPart]:
        parts: list[TextPart | MediaPart] = []
        for position, each in enumerate(value):
            where, part = f"{place}, content[{position}]", object_of(each)
            kind = part.get("type")
            if isinstance(each, str) or isinstance(part.get("text"), str):
                parts.append(TextPart(text=each if isinstance(each, str) else part["text"]))
            elif isinstance(part.get("refusal"), str):
                parts.append(TextPart(text=part["refusal"]))
            elif kind in ("input_image", "image", "inputImage"):
                address = next((part[key] for key in ("image_url", "imageUrl", "url") if part.get(key)), None)
                if address is not None:
                    parts.append(self._media.url(address, where, part.get("detail")))
                elif isinstance(part.get("data"), str):
                    parts.append(self._media.encoded(part["data"], part.get("mimeType"), where))
                else:
                    self._say(where, "an image has no bytes and no address", lost=False)
            elif kind == "encrypted_content":
                self.skipped["content that is encrypted"] += 1
            else:
                self._say(where, f"kept as its JSON: {_named(each)}", lost=False)
                parts.append(TextPart(text=json_text(each)))
        return parts

    def _open(self, place: str, at: float) -> Reply:
        if self._reply is None or self._reply.answered:
            self.close()
            self._reply = Reply(place, at)
        return self._reply

    def _message(self, item: dict[str, Any], place: str, at: float) -> None:
        role = item.get("role")
        if role == "assistant":
            content = item.get("content")
            parts = self._parts(content, place) if isinstance(content, list) else None
            reply = self._open(place, at)
            reply.turn = reply.turn or _turn(item)
            reply.parts += parts if parts is not None else [TextPart(text=str(self.content(content, place)))]
            return
        self.close()
        named = _ROLES.get(role) if isinstance(role, str) else None
        if named is None:
            self._say(place, f"a message has the role {bounded(role, 60)!r}; it is read as the user's", lost=False)
        self.add(Message(role=named or "user", content=self.content(item.get("content"), place)))

    def _reasoning(self, item: dict[str, Any], place: str, at: float) -> None:
        texts = [t for part in list_of(item.get("content")) if (t := text_of(object_of(part).get("text"))) is not None]
        told = [t for part in list_of(item.get("summary")) if (t := text_of(object_of(part).get("text"))) is not None]
        reply = self._open(place, at)
        reply.turn = reply.turn or _turn(item)
        if said := "".join(texts) or "\n".join(told):
            reply.thoughts.append(said)
        if item.get("encrypted_content") is not None:
            reply.encrypted += 1

    def _call(self, kind: str, item: dict[str, Any], place: str, at: float) -> None:
        call_id = text_of(item.get("call_id")) or text_of(item.get("id"))
        name = text_of(item.get("name"))
        if kind in ("function_call", "custom_tool_call", "mcp_tool_call"):
            given = item.get("arguments" if kind != "custom_tool_call" else "input")
            if name is None:
                self._say(place, "a call has no name")
            name = flat_name(text_of(item.get("namespace")) or text_of(item.get("server_label")) or "", name or "")
        else:
            # Tools that Codex or the service has built in: the kind of the item is their name.
            name = kind.removesuffix("_call")
            given = item.get("arguments", item.get("action"))
            if kind == "image_generation_call":
                given = {"revised_prompt": item.get("revised_prompt")}
        arguments = given if isinstance(given, str) else "" if given is None else json_text(given)
        call_id = self.call(name, arguments, place, at, call_id)
        reply = self._reply
        if reply is not None:
            reply.turn = reply.turn or _turn(item)
        if kind == "image_generation_call" and isinstance(item.get("result"), str):
            image = self._media.encoded(item["result"], None, place)
            self.result(call_id, content_of([image]), place, within=True)

    def _output(self, item: dict[str, Any], place: str, at: float) -> None:
        call_id = text_of(item.get("call_id")) or text_of(item.get("id"))
        said = item.get("output", item.get("tools", item.get("result")))
        self.result(call_id, self.content(said, place), place)


def _turn(item: dict[str, Any]) -> str | None:
    told = object_of(item.get("internal_chat_message_metadata_passthrough")) or object_of(item.get("metadata"))
    return text_of(told.get("turn_id"))


def _named(value: Any) -> str:
    kind = object_of(value).get("type")
    return f"one of type {kind[:60]!r}" if isinstance(kind, str) else f"one without a type ({json_text(value)[:60]})"
