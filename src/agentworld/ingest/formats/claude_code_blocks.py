"""Content blocks of Claude Code's session files -> texts, calls and messages."""

from __future__ import annotations

from typing import Any

from agentworld.dialects.messages_blocks import RAW_ARGUMENTS, written
from agentworld.ingest.formats.values import Content, Media, Say, bounded, content_of, json_text, object_of, text_of
from agentworld.records import FunctionCall, MediaPart, Message, TextPart, ToolCall

_READ = frozenset(
    ("type", "text", "thinking", "signature", "data", "id", "name", "input", "tool_use_id", "content", "is_error",
     "cache_control")
)  # fmt: skip
_MOST_OTHERS, _LONGEST_OTHER = 64, 1000
_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")


class Reply:
    """What the lines of one reply hold, in their order."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.thoughts: list[str] = []
        self.calls: list[ToolCall] = []
        self.results: list[Message] = []
        self.redacted = 0
        self.others: list[dict[str, Any]] = []

    def message(self) -> Message:
        """The reply as one message: its text is one string, however it was cut into blocks and lines."""
        return Message(
            role="assistant",
            content="".join(self.texts) if self.texts or not self.calls else None,
            # Thinking that the service does not show comes as an empty text.
            reasoning="".join(self.thoughts) or None,
            tool_calls=tuple(self.calls),
        )


class Blocks:
    """Reads blocks; what they do not say otherwise is said with `say`. `made`: ids of calls that had none."""

    def __init__(self, say: Say, media: Media) -> None:
        self._say = say
        self._media = media
        self._made = 0

    def made_id(self) -> str:
        """An id for a call that has none."""
        self._made += 1
        return f"call_{self._made}"

    def into_reply(self, content: Any, place: str, reply: Reply) -> None:
        """Add what one line of a reply says."""
        if isinstance(content, str):
            reply.texts.append(content)
            return
        if not isinstance(content, list):
            if content is not None:
                self._say(place, f"the reply's content is no text and no list: {type(content).__name__}")
            return
        for position, value in enumerate(content):
            block = object_of(value)
            kind, where = block.get("type"), f"{place}, message.content[{position}]"
            self._besides(block, where, reply)
            if kind == "text" and isinstance(block.get("text"), str):
                reply.texts.append(block["text"])
            elif kind == "thinking" and isinstance(block.get("thinking"), str):
                reply.thoughts.append(block["thinking"])
            elif kind == "redacted_thinking":
                reply.redacted += 1
            elif kind in _CALLS:
                reply.calls.append(self.call(block, where))
            elif isinstance(kind, str) and kind.endswith("_tool_result"):
                reply.results.append(self.result(block, where)[0])
            elif isinstance(value, str):
                reply.texts.append(value)
            else:
                self._say(where, f"a block of the reply cannot be read: {_named(kind, value)}")

    def _besides(self, block: dict[str, Any], place: str, reply: Reply) -> None:
        """Keep what a block has besides what is read of it: citations, the server of a tool, and so on."""
        if _READ.issuperset(block):
            return
        rest = {key: value for key, value in block.items() if key not in _READ and value not in (None, [], {}, "")}
        if rest and len(reply.others) < _MOST_OTHERS:
            kept = rest if len(json_text(rest)) <= _LONGEST_OTHER else {"cut": bounded(rest, _LONGEST_OTHER)}
            reply.others.append({"type": bounded(block.get("type"), 100), **kept})
        elif rest:
            self._say(place, f"only the first {_MOST_OTHERS} blocks with other fields keep them")

    def call(self, block: dict[str, Any], place: str) -> ToolCall:
        """A tool call; one without an id gets one, and one without a name has the empty one."""
        name = text_of(block.get("name"))
        if name is None:
            self._say(place, "a tool call has no name")
        given = block.get("input")
        # Text stands where the reply broke off within the arguments.
        arguments = given if isinstance(given, str) else _written(given)
        return ToolCall(id=text_of(block.get("id")) or self.made_id(), function=FunctionCall(name or "", arguments))

    def result(self, block: dict[str, Any], place: str) -> tuple[Message, bool]:
        """A tool's result, and whether it is an error."""
        failed = block.get("is_error") is True
        said = block.get("content")
        content: Content = "" if said is None else self.content(said, place)
        if failed and content == "":
            content = "error"  # An empty result says nothing of the failure, which the text of others does.
        return Message(role="tool", content=content, tool_call_id=text_of(block.get("tool_use_id"))), failed

    def content(self, value: Any, place: str) -> Content:
        """Text, or parts."""
        if isinstance(value, str):
            return value
        if not isinstance(value, list):
            return json_text(value)
        return content_of([self.part(item, f"{place}.content[{at}]") for at, item in enumerate(value)])

    def part(self, value: Any, place: str) -> TextPart | MediaPart:
        """A text or a medium; any other block stands as its JSON, so that nothing is lost."""
        if isinstance(value, str):
            return TextPart(text=value)
        block = object_of(value)
        kind, text = block.get("type"), block.get("text")
        if kind == "text" and isinstance(text, str):
            return TextPart(text=text)
        if kind in ("image", "document"):
            source = object_of(block.get("source"))
            if source.get("type") == "base64":
                return self._media.encoded(source.get("data"), source.get("media_type"), place)
            if source.get("type") == "url":
                return self._media.url(source.get("url"), place)
            if source.get("type") == "text" and isinstance(source.get("data"), str):
                return TextPart(text=source["data"])
        self._say(place, f"kept as its JSON: {_named(kind, value)}", lost=False)
        return TextPart(text=json_text(value))

    def user(self, content: Any, place: str) -> tuple[list[tuple[Message, bool]], Message | None]:
        """What a line of the user says: results of tools, and the user's own turn after them."""
        if isinstance(content, str):
            return [], Message(role="user", content=content)
        if not isinstance(content, list):
            self._say(place, f"the message's content is no text and no list: {type(content).__name__}")
            return [], None
        results: list[tuple[Message, bool]] = []
        parts: list[TextPart | MediaPart] = []
        for position, value in enumerate(content):
            block, where = object_of(value), f"{place}, message.content[{position}]"
            if block.get("type") == "tool_result":
                results.append(self.result(block, where))
            else:
                parts.append(self.part(value, where))
        if not parts and results:
            return results, None
        return results, Message(role="user", content=content_of(parts))


def _written(given: Any) -> str:
    if given is None or (isinstance(given, dict) and RAW_ARGUMENTS in given):
        return written(given)
    return json_text(given)


def _named(kind: Any, value: Any) -> str:
    return (
        f"a block of type {kind[:60]!r}"
        if isinstance(kind, str)
        else f"a block without a type ({json_text(value)[:60]})"
    )
