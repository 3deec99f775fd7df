"""Messages as agents' frameworks write them into traces: OpenAI's chat and responses, Anthropic, OpenTelemetry's parts,
Gemini's contents, LangChain's serialised messages, Vercel's, and what looks like one of these.

Nothing is refused: what cannot be understood is said and kept beside.
"""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from agentworld.ingest.spans.blobs import blob
from agentworld.ingest.spans.loose import items, table, text, unpacked, written
from agentworld.ingest.spans.node import Say
from agentworld.records import FunctionCall, Message, Part, Role, TextPart, ToolCall

_KNOWN_ROLES = frozenset(get_args(Role))
_ROLES: dict[str, Role] = {
    "human": "user",
    "humanmessage": "user",
    "humanmessagechunk": "user",
    "ai": "assistant",
    "model": "assistant",
    "aimessage": "assistant",
    "aimessagechunk": "assistant",
    "bot": "assistant",
    "systemmessage": "system",
    "systemmessagechunk": "system",
    "function": "tool",
    "toolmessage": "tool",
    "toolmessagechunk": "tool",
    "functionmessage": "tool",
    "tool_result": "tool",
    "tool-result": "tool",
}
_TEXT = ("text", "input_text", "output_text", "summary_text")
_THINKING = ("reasoning", "thinking", "reasoning_text", "reasoningContent")
_CALLS = ("tool_call", "tool_use", "tool-call", "function_call", "custom_tool_call", "server_tool_call", "toolUse")
_RESULTS = (
    "tool_call_response",
    "tool_result",
    "tool-result",
    "function_call_output",
    "custom_tool_call_output",
    "function_response",
    "server_tool_call_response",
    "toolResult",
)
_BLOBS = (
    "image",
    "image_url",
    "input_image",
    "blob",
    "uri",
    "file",
    "file_data",
    "input_audio",
    "audio",
    "media",
    "inline_data",
)
# Items of a list that are not messages by themselves but pieces of the reply that they stand in.
_PIECES = ("reasoning", "function_call", "custom_tool_call")
_MAX_LEFT = 20


class Conversation:
    """Reads the messages of one call. `media`: the bytes that they show; `left`: parts that are no message's."""

    def __init__(self, say: Say) -> None:
        self.media: dict[str, tuple[bytes, str]] = {}
        self.left: list[Any] = []
        self._say = say

    def messages(self, value: Any, place: str, role: Role = "user") -> list[Message]:
        """The messages in a list, an object that has one, or a text; `role`: of what names none."""
        value = unpacked(value)
        if isinstance(value, dict):
            for name in ("messages", "contents", "input", "output"):
                if isinstance(value.get(name), list) and "role" not in value and "type" not in value:
                    return self.messages(value[name], f"{place}.{name}", role)
        if value is None:
            return []
        if isinstance(value, str):
            if value.startswith(('[{"', '{"role"')):
                # Exporters cut long attributes.
                self._say(place, "these should be messages, but their JSON is cut or broken; they are kept as one text")
            return [Message(role=role, content=value)] if value else []
        listed = value if isinstance(value, list) else [value]
        if len(listed) == 1 and isinstance(listed[0], list) and not _is_pair(listed):
            listed = listed[0]  # LangChain's callbacks have a list for each prompt of a batch.
        found: list[Message] = []
        joining = False
        for position, item in enumerate(listed):
            where = f"{place}[{position}]" if isinstance(value, list) else place
            piece = isinstance(item, dict) and item.get("type") in _PIECES and "role" not in item
            several = self._message(item, where, "assistant" if piece else role)
            said = bool(several) and several[0].role == "assistant" and len(several) == 1
            if joining and said and (piece or _is_item(item)):
                found[-1] = _joined(found[-1], several[0])
            else:
                found += several
                joining = False
            joining = joining or (said and (piece or _is_item(item)))
        return found

    def reply(self, value: Any, place: str) -> Message | None:
        """What a model said: the one message of the assistant; the texts of several are put together."""
        said = [each for each in self.messages(value, place, "assistant") if each.role == "assistant"]
        found: Message | None = None
        for message in said:
            found = message if found is None else _joined(found, message)
        return found

    def _message(self, item: Any, place: str, default: Role) -> list[Message]:
        item = unpacked(item)
        if isinstance(item, str):
            return [Message(role=default, content=item)]
        if _is_pair(item):
            item = {"role": item[0], "content": item[1]}
        if not isinstance(item, dict):
            self._say(place, f"a message is an object, not {_kind(item)}")
            return []
        item = _unwrapped(item)
        said = item.get("role") if isinstance(item.get("role"), str) else item.get("type")
        role = self._role(said, item, place, default)
        reading = _Reading()
        if "parts" in item and "content" not in item:
            self._content(item["parts"], f"{place}.parts", reading)
        elif item.get("type") in (*_PIECES, *_RESULTS) and "role" not in item:
            self._part(item, place, reading)
            role = "assistant" if item.get("type") in _PIECES else role
        else:
            self._content(item.get("content"), f"{place}.content", reading)
        extra = item.get("additional_kwargs") if isinstance(item.get("additional_kwargs"), dict) else {}
        for name in ("reasoning_content", "reasoning", "thinking"):
            thought = text(item.get(name)) or text(extra.get(name))
            if thought and thought not in reading.thoughts:
                reading.thoughts.append(thought)
        if not reading.calls:
            self._calls(item, extra, place, reading)
        if "content" not in item and "parts" not in item and isinstance(item.get("refusal"), str):
            reading.parts.append(TextPart(item["refusal"]))
        return self._put_together(item, role, reading, place)

    def _role(self, said: Any, item: dict[str, Any], place: str, default: Role) -> Role:
        if isinstance(said, str):
            if said in _KNOWN_ROLES:
                return said  # type: ignore[return-value]  # It is one of them.
            if (known := _ROLES.get(said.lower())) is not None:
                return known
            if "role" in item:
                self._say(place, f"the role {said[:40]!r} is not known; it is read as {default}", lost=False)
        if text(item.get("tool_call_id")) and "role" not in item:
            return "tool"
        return default

    def _put_together(self, item: dict[str, Any], role: Role, reading: _Reading, place: str) -> list[Message]:
        call_id = next(
            (item[name] for name in ("tool_call_id", "toolCallId", "tool_use_id") if text(item.get(name))), None
        )
        content = reading.content(item.get("content", item.get("parts")))
        if role == "tool" and not reading.results:
            shown = content if content is not None else ""
            return [Message(role="tool", content=shown, tool_call_id=call_id or "")]
        message = Message(
            role=role,
            content=content,
            reasoning="\n".join(reading.thoughts) or None,
            tool_calls=tuple(reading.calls) if role == "assistant" else (),
            name=text(item.get("name")) if role in ("user", "system", "developer") else None,
        )
        if reading.calls and role != "assistant":
            message = msgspec.structs.replace(message, role="assistant", tool_calls=tuple(reading.calls))
        says = message.content is not None or message.tool_calls or message.reasoning
        if reading.results:
            return [*reading.results, message] if says and message.content != "" and role != "tool" else reading.results
        if not says and not isinstance(item.get("role"), str) and "content" not in item:
            if item.keys() == {"tools"}:  # They are read as those of the call.
                self._say(place, "of this message the file has only the tools", lost=False)
            else:
                self._say(place, "the message has no role, no content and no tool calls")
            return []
        return [message]

    def _content(self, value: Any, place: str, reading: _Reading) -> None:
        if value is None:
            return
        if isinstance(value, str):
            reading.plain = value
            return
        for position, part in enumerate(value if isinstance(value, list) else [value]):
            self._part(part, f"{place}[{position}]" if isinstance(value, list) else place, reading)

    def _part(self, part: Any, place: str, reading: _Reading) -> None:
        if isinstance(part, str):
            reading.parts.append(TextPart(part))
            return
        if not isinstance(part, dict):
            self._say(place, f"a content part is an object, not {_kind(part)}")
            return
        kind = part.get("type") if isinstance(part.get("type"), str) else next(iter(part), None)
        shown = next(
            (part[name] for name in ("text", "content", "output_text") if isinstance(part.get(name), str)), None
        )
        if kind in _THINKING or part.get("thought") is True:
            reading.thoughts += filter(None, [_thought(part)])
        elif kind in (*_TEXT, "refusal") or ("type" not in part and isinstance(part.get("text"), str)):
            reading.parts.append(TextPart(shown if shown is not None else text(part.get("refusal")) or ""))
        elif kind in _CALLS or "functionCall" in part:
            self._call(part, place, reading)
        elif kind in _RESULTS or "functionResponse" in part:
            self._result(part, place, reading)
        elif kind in (*_BLOBS, "inlineData", "document"):
            put = blob(part, self.media)
            reading.parts.append(put.part)
            if put.why is not None:
                self._say(place, put.why, lost=put.lost)
        else:
            self._leave(
                part, place, f"content parts of type {str(kind)[:40]!r} are not known; kept in the metadata", False
            )

    def _leave(self, part: Any, place: str, why: str, lost: bool = True) -> None:
        self._say(place, why, lost=lost)
        if len(self.left) < _MAX_LEFT:
            self.left.append(part)

    def _calls(self, item: dict[str, Any], extra: dict[str, Any], place: str, reading: _Reading) -> None:
        given = unpacked(item.get("tool_calls") or item.get("toolCalls") or extra.get("tool_calls"))
        if isinstance(given, list):
            for position, call in enumerate(given):
                self._call(call, f"{place}.tool_calls[{position}]", reading)
        elif given is not None:
            self._say(f"{place}.tool_calls", f"tool calls are a list, not {_kind(given)}")
        legacy = unpacked(item.get("function_call") or extra.get("function_call"))
        if isinstance(legacy, dict) and not reading.calls and item.get("type") not in _PIECES:
            self._call({"function": legacy}, f"{place}.function_call", reading)
        for call in items(item.get("invalid_tool_calls")):
            self._call(call, f"{place}.invalid_tool_calls", reading)

    def _call(self, call: Any, place: str, reading: _Reading) -> None:
        call = unpacked(call)
        if not isinstance(call, dict):
            self._say(place, f"a tool call is an object, not {_kind(call)}")
            return
        around = ("function", "function_call", "functionCall", "tool_call", "toolUse")
        inner = next((call[name] for name in around if isinstance(call.get(name), dict)), call)
        if isinstance(inner.get("function"), dict):
            inner = {**inner["function"], "id": inner.get("id")}
        name = next((inner[key] for key in ("name", "toolName", "tool_name") if text(inner.get(key))), None)
        if name is None:
            self._say(place, "the tool call names no tool")
            return
        given: Any = next((inner[key] for key in ("arguments", "args", "input") if inner.get(key) is not None), {})
        ids = (
            call.get("call_id"),
            call.get("id"),
            call.get("toolCallId"),
            inner.get("id"),
            inner.get("call_id"),
            inner.get("toolUseId"),
        )
        call_id = next((each for each in ids if isinstance(each, str)), "")
        reading.calls.append(ToolCall(id=call_id, function=FunctionCall(name, written(given))))

    def _result(self, part: dict[str, Any], place: str, reading: _Reading) -> None:
        inner = part.get("function_response") or part.get("functionResponse") or part.get("toolResult") or part
        inner = inner if isinstance(inner, dict) else part
        ids = ("tool_use_id", "toolUseId", "toolCallId", "call_id", "tool_call_id", "id")
        call_id = next((inner[name] for name in ids if text(inner.get(name))), "")
        names = ("response", "result", "output", "content")
        value = next((inner[name] for name in names if inner.get(name) is not None), "")
        if isinstance(value, dict) and value.get("type") in ("text", "json", "content", "error-text", "error-json"):
            value = value.get("value", value.get("text", value))  # Vercel's typed outputs.
        reading.results.append(
            Message(role="tool", content=self._shown(value, place), tool_call_id=call_id, name=text(inner.get("name")))
        )

    def _shown(self, value: Any, place: str) -> str | tuple[Part, ...]:
        """A tool's result: text, parts of an API, or any value as JSON."""
        if isinstance(value, list) and value and all(isinstance(each, dict) and "type" in each for each in value):
            known = (*_TEXT, *_BLOBS)
            if all(each["type"] in known for each in value):
                inner = _Reading()
                self._content(value, place, inner)
                return inner.content(value) or ""
        if (
            isinstance(value, list)
            and value
            and all(isinstance(each, dict) and set(each) == {"text"} for each in value)
        ):
            return "".join(written(each["text"]) for each in value)
        return written(value)


class _Reading:
    """What one message is made of, while it is read."""

    def __init__(self) -> None:
        self.plain: str | None = None
        self.parts: list[Part] = []
        self.thoughts: list[str] = []
        self.calls: list[ToolCall] = []
        self.results: list[Message] = []

    def content(self, given: Any) -> str | tuple[Part, ...] | None:
        if self.plain is not None:
            return self.plain
        if len(self.parts) == 1 and isinstance(self.parts[0], TextPart):
            return self.parts[0].text
        return tuple(self.parts) if self.parts else None


def _joined(first: Message, second: Message) -> Message:
    """Two pieces of one reply as one."""
    contents = [each for each in (first.content, second.content) if each not in (None, "", ())]
    if all(isinstance(each, str) for each in contents):
        content: Any = "".join(contents) if contents else first.content if first.content is not None else second.content  # type: ignore[arg-type]
    else:
        content = tuple(
            part for each in contents for part in ((TextPart(each),) if isinstance(each, str) else each or ())
        )
    thoughts = [each for each in (first.reasoning, second.reasoning) if each]
    calls = (*first.tool_calls, *second.tool_calls)
    return msgspec.structs.replace(first, content=content, reasoning="\n".join(thoughts) or None, tool_calls=calls)


def _unwrapped(item: dict[str, Any]) -> dict[str, Any]:
    """The message itself, where an object of LangChain or of OpenInference is around it."""
    if item.get("lc") is not None and isinstance(item.get("kwargs"), dict):
        named = item.get("id")
        kind = named[-1] if isinstance(named, list) and named else None
        return {**item["kwargs"], "type": item["kwargs"].get("type") or kind}
    if isinstance(item.get("data"), dict) and isinstance(item.get("type"), str) and "content" in item["data"]:
        return {**item["data"], "type": item["type"]}
    inner = item.get("message")
    if isinstance(inner, dict) and "role" not in item and "content" not in item:
        return _unwrapped(inner)
    if any(isinstance(key, str) and key.startswith("message.") for key in item):
        return {str(key).removeprefix("message."): value for key, value in item.items()}
    return item


def _thought(part: dict[str, Any]) -> str:
    part = table(table(part.get("reasoningContent")).get("reasoningText")) or part
    for name in ("thinking", "content", "text", "reasoning"):
        if isinstance(part.get(name), str):
            found: str = part[name]
            return found
    listed = part.get("content") or part.get("summary")
    if isinstance(listed, list):
        return "\n".join(
            each["text"] for each in listed if isinstance(each, dict) and isinstance(each.get("text"), str)
        )
    return ""


def _is_item(item: Any) -> bool:
    """Whether it is an item of OpenAI's responses, of which several can be one reply."""
    return isinstance(item, dict) and (item.get("type") == "message" or item.get("type") in _PIECES)


def _is_pair(item: Any) -> bool:
    return (
        isinstance(item, list | tuple)
        and len(item) == 2
        and isinstance(item[0], str)
        and isinstance(item[1], str)
        and (item[0] in _KNOWN_ROLES or item[0].lower() in _ROLES)
    )


def _kind(value: Any) -> str:
    names = {
        list: "a list",
        str: "a text",
        bool: "true or false",
        int: "a number",
        float: "a number",
        dict: "an object",
    }
    return "null" if value is None else names.get(type(value), "something else")
