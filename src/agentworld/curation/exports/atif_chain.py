"""One document of ATIF while it is written: its messages as steps, and results of calls with the step that called."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Callable
from typing import Any

import msgspec

from agentworld.errors import NotFoundError
from agentworld.ingest.formats.atif_extension import KEY
from agentworld.ingest.formats.media import ADDRESS
from agentworld.ingest.formats.noted import json_text
from agentworld.records import MediaPart, Message, Step, TextPart, ToolCall, exact_json

_SOURCES = {"system": "system", "developer": "system", "user": "user", "tool": "user", "assistant": "agent"}
_IMAGES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))

Media = Callable[[str], bytes]


class Chain:
    """Steps each of whose prompts goes on from the reply before, and the document that they become."""

    def __init__(self, name: str | None, first: Step, media: Media | None) -> None:
        self.name = name  # None: the whole
        self.steps = [first]
        self.parent: tuple[Chain, int] | None = None
        self._media = media
        self.agent = first.agent
        self.model = first.model
        self.tools = first.tools
        self.said: list[Message] = []
        self.out: list[dict[str, Any]] = []
        self.results_of: dict[str, Any] | None = None  # the agent's step that results can still be put to
        self.has_audio = False

    def add(self, message: Message) -> None:
        """What was said, and sampled nowhere in this document."""
        if message.role == "tool" and self.results_of is not None:
            self._add_result(self.results_of, message)
            return
        out = self.message(message)
        if message.role == "assistant":
            out["is_copied_context"] = True
        self.out.append(out)
        self.results_of = out if message.role == "assistant" else None

    def _add_result(self, of: dict[str, Any], message: Message) -> None:
        calls = [call["tool_call_id"] for call in of.get("tool_calls", ())]
        result: dict[str, Any] = {}
        own: dict[str, Any] = {}
        if message.tool_call_id in calls:
            result["source_call_id"] = message.tool_call_id
        else:
            own |= {"role": "tool", "tool_call_id": message.tool_call_id}
            own |= {"content": None} if message.content is None else {}
        result["content"] = self._content(message, own, empty=None)
        if message.name is not None:
            own["name"] = message.name
        if own:
            result["extra"] = {KEY: {"message": own}}
        of.setdefault("observation", {}).setdefault("results", []).append(result)

    def message(self, message: Message) -> dict[str, Any]:
        """The next step, for a message."""
        own: dict[str, Any] = {}
        out: dict[str, Any] = {"step_id": len(self.out) + 1, "source": _SOURCES[message.role]}
        out["message"] = self._content(message, own, empty="")
        if message.role in ("developer", "tool"):
            own["role"] = message.role
        for name in ("tool_call_id", "name"):
            if getattr(message, name) is not None:
                own[name] = getattr(message, name)
        if message.role == "assistant":
            if message.reasoning is not None:
                out["reasoning_content"] = message.reasoning
            if message.tool_calls:
                out["tool_calls"] = [_call(call) for call in message.tool_calls]
        else:
            if message.reasoning is not None:
                own |= {"reasoning": message.reasoning}
            if message.tool_calls:
                own["tool_calls"] = msgspec.to_builtins(message.tool_calls)
        if own:
            out["extra"] = {KEY: {"message": own}}
        return out

    def _content(self, message: Message, own: dict[str, Any], *, empty: str | None) -> Any:
        """The content as the format has it; what it would be read as otherwise goes to `own`."""
        content = message.content
        if content is None:
            if empty is not None:
                own["content"] = None
            return empty
        if isinstance(content, str):
            return content
        if not content or any(isinstance(part, MediaPart) for part in content):
            own["content"] = msgspec.to_builtins(content)
        return [self._part(part) for part in content]

    def _part(self, part: TextPart | MediaPart) -> dict[str, Any]:
        if isinstance(part, TextPart):
            return {"type": "text", "text": part.text}
        if self._media is None:
            raise NotFoundError(f"the medium {part.digest} cannot be read", path="media", hint="Say how to read media")
        data = self._media(part.digest)
        if part.media_type == ADDRESS:
            address = data.decode("utf-8", "surrogatepass")
            guessed = part.detail or mimetypes.guess_type(address)[0]
            return _shown(guessed if guessed in _IMAGES else "image/png", address)
        self.has_audio = self.has_audio or part.media_type.startswith("audio/")
        return _shown(part.media_type, f"data:{part.media_type};base64,{base64.b64encode(data).decode()}")


def _call(call: ToolCall) -> dict[str, Any]:
    """A call; the text of its arguments beside them where it is not what their JSON would be."""
    raw = call.function.arguments
    try:
        arguments = exact_json.decode(raw.encode("utf-8", "surrogatepass"))
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError):
        arguments = None
    found = arguments if isinstance(arguments, dict) else {}
    out: dict[str, Any] = {"tool_call_id": call.id, "function_name": call.function.name, "arguments": found}
    if not isinstance(arguments, dict) or json_text(arguments) != raw:
        out["extra"] = {KEY: {"arguments": raw}}
    return out


def _shown(media_type: str, path: str) -> dict[str, Any]:
    kind = "audio" if media_type.startswith("audio/") else "image"
    return {"type": kind, "source": {"media_type": media_type, "path": path}}
