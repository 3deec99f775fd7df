"""Messages in the shape of OpenAI chat, out of files: whatever is in them is kept, and what is wrong is said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from agentworld.ingest.formats.chat_blocks import detailed, picture_of, prepared
from agentworld.ingest.formats.media import Media, put_base64, put_nothing, put_url
from agentworld.ingest.formats.noted import Values, as_text, call_of, kind_of
from agentworld.records import MediaPart, Message, TextPart, Tool, ToolCall
from agentworld.records.message import Role

ROLES: dict[str, Role] = {
    "system": "system", "developer": "developer", "user": "user", "assistant": "assistant", "tool": "tool",
    "function": "tool", "human": "user", "gpt": "assistant", "chatgpt": "assistant", "model": "assistant",
    "bot": "assistant", "ai": "assistant", "observation": "tool", "ipython": "tool", "tool_response": "tool",
    "bing": "assistant", "bard": "assistant", "claude": "assistant", "gemini": "assistant", "palm": "assistant",
    "llama": "assistant", "gpt4": "assistant", "gpt-4": "assistant", "gpt-3.5": "assistant", "gpt3.5": "assistant",
    "chat_gpt": "assistant", "llm": "assistant", "agent": "assistant", "copilot": "assistant",
    "prompter": "user", "tool_result": "tool", "tool_output": "tool", "function_response": "tool",
    "function_result": "tool", "function_output": "tool", "environment": "tool", "env": "tool",
}  # fmt: skip
READ = frozenset(
    (
        "role",
        "content",
        "tool_calls",
        "function_call",
        "tool_call_id",
        "name",
        "reasoning_content",
        "reasoning",
        "refusal",
    )
)
_TEXTS = frozenset(("text", "input_text", "output_text"))
_PICTURES = frozenset(("image_url", "input_image", "image"))
_NOTHING = frozenset((None, "", ()))
_THOUGHTS = ("reasoning_content", "reasoning")

Part = TextPart | MediaPart


class Conversation(msgspec.Struct):
    """Messages in order; `about`: what else some of them have, by their places."""

    messages: list[Message] = []
    about: dict[int, dict[str, Any]] = {}


class ChatReader:
    """Reads the messages of one run. Calls without an id get `call_0`, `call_1`, ... over the whole run; results
    without one belong to the calls before them, in order.
    """

    def __init__(self, values: Values, media: Media) -> None:
        self.values = values
        self.media = media
        self._numbered = 0
        self._waiting: list[str] = []

    def again(self) -> ChatReader:
        """A reader that goes on from here by itself, for another answer to the same."""
        other = ChatReader(self.values, self.media)
        other._numbered, other._waiting = self._numbered, list(self._waiting)
        return other

    def conversation(self, given: list[Any], place: str) -> Conversation:
        """Messages at a place; what is none is noted and left out."""
        found = Conversation()
        for number, each in prepared(given, _role_in):
            where = f"{place}[{number}]"
            if not isinstance(each, dict):
                self.values.lost(where, f"a message must be an object, not {kind_of(each)}")
                continue
            if about := beyond(each, READ):
                found.about[len(found.messages)] = about
            found.messages.append(self.message(each, where))
        return found

    def message(self, given: Mapping[str, Any], place: str) -> Message:
        """One message."""
        values = self.values
        role = self._role(given.get("role"), place)
        calls = self.calls(given, place) if "tool_calls" in given or "function_call" in given else ()
        thoughts: list[str] = []
        content = given.get("content")
        if not isinstance(content, str):
            content = self.content(content, f"{place}.content", thoughts)
        if content is None and isinstance(given.get("refusal"), str):
            content = given["refusal"]
        for key in _THOUGHTS if "reasoning" in given or "reasoning_content" in given else ():
            said = given.get(key)
            if isinstance(said, str) and said not in thoughts:
                thoughts.append(said)
            elif said is not None and not isinstance(said, str):
                values.lost(f"{place}.{key}", f"reasoning must be a text, not {kind_of(said)}")
        for said in detailed(given["reasoning_details"])[0] if "reasoning_details" in given else ():
            if not any(said in thought for thought in thoughts):
                thoughts.append(said)
        if role != "assistant" and calls:
            values.said(place, f"only an assistant calls tools; the message of {role} is read as the assistant's")
            role = "assistant"
        name = values.text(given, "name", place) if "name" in given else None
        tool_call_id = values.text(given, "tool_call_id", place) if "tool_call_id" in given else None
        if role == "tool":
            tool_call_id = self.answered(tool_call_id)
        return Message(
            role=role,
            content=content,
            reasoning="\n".join(thoughts) if thoughts else None,
            tool_calls=calls,
            tool_call_id=tool_call_id,
            name=name,
        )

    def calls(self, given: Mapping[str, Any], place: str) -> tuple[ToolCall, ...]:
        """The calls of a message, those of the older `function_call` too."""
        found: list[ToolCall] = []
        for number, each in enumerate(self.values.items(given, "tool_calls", place) or ()):
            where = f"{place}.tool_calls[{number}]"
            if not isinstance(each, dict):
                self.values.lost(where, f"a call must be an object, not {kind_of(each)}")
                continue
            function = each.get("function", each)
            custom = each.get("custom")
            if isinstance(custom, dict) and "function" not in each:
                function = {"name": custom.get("name"), "arguments": custom.get("input")}
                self.values.said(where, "a custom tool's call; its input is kept as the arguments")
            call_id = self.values.text(each, "id", where)
            self._called(found, function, call_id, where)
        if given.get("function_call") not in (None, "none", "auto", {}):
            self._called(found, given["function_call"], None, f"{place}.function_call")
        return tuple(found)

    def call(self, name: str, arguments: Any, call_id: str | None = None) -> ToolCall:
        """A call, which now waits for its result."""
        if call_id is None:
            call_id, self._numbered = f"call_{self._numbered}", self._numbered + 1
        self._waiting.append(call_id)
        return call_of(name, arguments, call_id)

    def answered(self, call_id: str | None) -> str:
        """The id of the call that a result is of: the one that it says, or of those that wait the first."""
        if call_id is None:
            return self._waiting.pop(0) if self._waiting else "call_unknown"
        if call_id in self._waiting:
            self._waiting.remove(call_id)
        return call_id

    def content(self, value: Any, place: str, thoughts: list[str]) -> str | tuple[Part, ...] | None:
        """Text, parts or null; a single part of text is text."""
        if value is None or isinstance(value, str):
            return value
        if not isinstance(value, list):
            self.values.said(place, f"content must be text or parts, not {kind_of(value)}; its JSON is kept as text")
            return as_text(value)
        parts: list[Part] = []
        for number, each in enumerate(value):
            part = self.part(each, f"{place}[{number}]", thoughts)
            if part is not None:
                parts.append(part)
        if not parts:
            return None if not value or thoughts else ""
        if len(parts) == 1 and isinstance(parts[0], TextPart):
            return parts[0].text
        return tuple(parts)

    def part(self, part: Any, place: str, thoughts: list[str]) -> Part | None:
        """One part; None for what is thought."""
        if isinstance(part, str):
            return TextPart(part)
        if not isinstance(part, dict):
            self.values.said(place, f"a part cannot be {kind_of(part)}; its JSON is kept as text")
            return TextPart(as_text(part))
        kind = part["type"] if isinstance(part.get("type"), str) else None
        if kind in _TEXTS or (kind == "refusal" and isinstance(part.get("refusal"), str)):
            text = next((part[key] for key in ("text", "value", "refusal") if isinstance(part.get(key), str)), None)
            if text is not None:
                return TextPart(text)
        if kind in ("thinking", "reasoning"):
            thought = next((part[key] for key in ("thinking", "text", "value") if isinstance(part.get(key), str)), None)
            if thought is not None:
                thoughts.append(thought)
                return None
        if kind in _PICTURES:
            given: Any = next((part[key] for key in ("image_url", "image", "url", "value") if part.get(key)), None)
            detail = part.get("detail")
            if isinstance(given, dict):
                given, detail = given.get("url"), given.get("detail", detail)
            given = given or picture_of(part)
            if isinstance(given, str):
                return self.picture(given, place, detail if isinstance(detail, str) else None)
        audio = part.get("input_audio") if kind == "input_audio" else None
        if isinstance(audio, dict) and isinstance(audio.get("data"), str):
            made = put_base64(self.media, audio["data"], f"audio/{audio.get('format', 'wav')}")
            if isinstance(made, MediaPart):
                return made
            return self.values.told(place, put_nothing(self.media, f"the audio cannot be read: {made}", "audio"))
        if kind in _PICTURES or kind == "input_audio":
            return self.values.told(place, put_nothing(self.media, said=kind))
        self.values.said(place, "a part of a kind that is not known here; its JSON is kept as text")
        return TextPart(as_text(part))

    def picture(self, address: str, place: str, detail: str | None = None) -> MediaPart:
        """The part for an image by its address."""
        return self.values.told(place, put_url(self.media, address, detail=detail, beside=self.values.beside))

    def _called(self, found: list[ToolCall], function: Any, call_id: str | None, where: str) -> None:
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str):
            self.values.lost(where, "a call needs the name of a function; it is left out")
            return
        arguments = function.get("arguments")
        if isinstance(arguments, str) and arguments.startswith('"{'):
            self.values.said(where, "the arguments are JSON within JSON; they are kept as they are")
        found.append(self.call(name, arguments, call_id))

    def _role(self, given: Any, place: str) -> Role:
        role = ROLES.get(given.lower()) if isinstance(given, str) else None
        if role is None:
            self.values.lost(f"{place}.role", f"the role {as_text(given)[:40]!r} is not known; read as the user's")
            return "user"
        return role


def beyond(given: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """What a message has besides what is read of it, and what is empty."""
    if known.issuperset(given):
        return {}
    about = {key: value for key, value in given.items() if key not in known}
    if "reasoning_details" in about and detailed(about["reasoning_details"])[1]:
        del about["reasoning_details"]
    return {key: value for key, value in about.items() if value not in (None, "", [], {})}


def role_of(given: Any) -> Any:
    """A role as it is called here; what is not known, as it is."""
    return ROLES.get(given.lower(), given) if isinstance(given, str) else given


def _role_in(message: Mapping[str, Any]) -> Any:
    return role_of(message.get("role"))


def tools_of(given: Any, values: Values, place: str) -> list[Tool] | None:
    """Tools as chat describes them, of a list of these or of bare functions, or of either as JSON text."""
    if given in (None, "", [], {}):
        return None
    if isinstance(given, str):
        try:
            given = msgspec.json.decode(given)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            values.lost(place, "the tools are no JSON")
            return None
    if isinstance(given, dict):
        given = [given]
    if not isinstance(given, list):
        values.lost(place, f"tools must be a list, not {kind_of(given)}")
        return None
    tools: list[Tool] = []
    for number, each in enumerate(given):
        if not isinstance(each, dict):
            values.lost(f"{place}[{number}]", f"a tool must be an object, not {kind_of(each)}")
        else:
            tools.append(each if "type" in each and "name" not in each else {"type": "function", "function": each})
    return tools or None
