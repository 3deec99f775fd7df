"""Messages of Inspect's samples -> messages, with attachments and pools put in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentworld.ingest.formats.chat_messages import ChatReader, tools_of
from agentworld.ingest.formats.media import Media
from agentworld.ingest.formats.noted import Values, json_text, kind_of
from agentworld.records import Message, Tool

_ATTACHMENTS = ("attachment://", "tc://")
_DEEPEST = 100
_MEDIA = ("audio", "video", "document")


class Texts:
    """Texts that a sample keeps apart, by the name that stands in their place."""

    def __init__(self, values: Values, place: str, *given: Any) -> None:
        self._values = values
        self._place = place
        self._texts: dict[str, str] = {}
        self._given: Any = None
        self._tools: list[Tool] | None = None
        for each in given:
            if isinstance(each, dict):
                self._texts.update({key: text for key, text in each.items() if isinstance(text, str)})
            elif isinstance(each, list):
                self._texts.update({str(at): text for at, text in enumerate(each) if isinstance(text, str)})

    def tools(self, given: Any, place: str) -> list[Tool] | None:
        """Tools as chat describes them; those that are the same as for the call before are not read again."""
        if given != self._given:
            self._given, self._tools = given, tools_of(self.put_in(given), self._values, place)
        return self._tools

    def put_in(self, value: Any, depth: int = 0) -> Any:
        """The value with its texts where only their names stand; one that is not there stays a name, which is said."""
        if isinstance(value, str):
            for prefix in _ATTACHMENTS:
                if value.startswith(prefix):
                    found = self._texts.get(value.removeprefix(prefix))
                    if found is None:
                        self._values.lost(self._place, f"the attachment {value[:80]!r} is not in the file")
                    return value if found is None else found
            return value
        if depth > _DEEPEST:
            return value
        if isinstance(value, list):
            return [self.put_in(each, depth + 1) for each in value]
        if isinstance(value, dict):
            return {key: self.put_in(each, depth + 1) for key, each in value.items()}
        return value


class InspectMessages:
    """Reads messages of one sample. `faults`: of results whose tool failed, by the id of their call, and of calls whose
    arguments could not be read.
    """

    def __init__(self, values: Values, texts: Texts, media: Media) -> None:
        self.values = values
        self.faults: dict[str, Any] = {}
        self._texts = texts
        self._media = media
        self._known: dict[int, tuple[Any, Message]] = {}

    def conversation(self, given: Any, place: str) -> list[Message]:
        """Messages in order; what is none is noted and left out."""
        if isinstance(given, str):
            return [Message(role="user", content=self._texts.put_in(given))]
        if not isinstance(given, list):
            if given is not None:
                self.values.lost(place, f"messages must be a list, not {kind_of(given)}")
            return []
        found = []
        for number, each in enumerate(given):
            if isinstance(each, dict):
                found.append(self.message(each, f"{place}[{number}]"))
            else:
                self.values.lost(f"{place}[{number}]", f"a message must be an object, not {kind_of(each)}")
        return found

    def message(self, given: dict[str, Any], place: str) -> Message:
        """One message. The same record is read once, however many calls were shown it."""
        known = self._known.get(id(given))
        if known is not None and known[0] is given:
            return known[1]
        record = self._texts.put_in(given)
        reader = ChatReader(self.values, self._media)
        chat: dict[str, Any] = {key: record[key] for key in ("role", "tool_call_id", "reasoning") if record.get(key)}
        chat["content"] = self._content(record.get("content"), f"{place}.content")
        calls = self.values.items(record, "tool_calls", place)
        if calls:
            chat["tool_calls"] = [self._call(call, f"{place}.tool_calls[{at}]") for at, call in enumerate(calls)]
        if record.get("role") == "tool":
            chat["name"] = self.values.name(record, "function", place)
            self._fault(record, chat)
        message = reader.message(chat, place)
        self._known[id(given)] = (given, message)
        return message

    def _fault(self, record: Mapping[str, Any], chat: dict[str, Any]) -> None:
        """A tool that failed: the model is shown the error, where there is no text of the result."""
        error = record.get("error")
        if not isinstance(error, dict):
            return
        if isinstance(record.get("tool_call_id"), str):
            self.faults[record["tool_call_id"]] = {key: error[key] for key in ("type", "message") if key in error}
        if chat["content"] in (None, "", []) and isinstance(error.get("message"), str):
            chat["content"] = error["message"]

    def _call(self, call: Any, place: str) -> Any:
        if not isinstance(call, dict):
            return call
        function = call.get("function")
        if call.get("parse_error") and isinstance(call.get("id"), str):
            self.faults[call["id"]] = {"type": "parse_error", "message": str(call["parse_error"])[:2000]}
        if not isinstance(function, str):
            return call
        return {"id": call.get("id"), "function": {"name": function, "arguments": call.get("arguments")}}

    def _content(self, content: Any, place: str) -> Any:
        """Parts in the shape that chat has; a tool that the provider ran itself stands as its JSON."""
        if not isinstance(content, list):
            return content
        found: list[Any] = []
        for number, part in enumerate(content):
            kind = part.get("type") if isinstance(part, dict) else None
            where = f"{place}[{number}]"
            if kind == "reasoning" and isinstance(part, dict):
                found += self._thought(part, where)
            elif kind in _MEDIA and isinstance(part, dict):
                found.append(self._medium(str(kind), part, where))
            elif kind == "data":
                found.append({"type": "text", "text": json_text(part)})
            else:
                found.append(part)
        return found

    def _thought(self, part: Mapping[str, Any], place: str) -> list[Any]:
        text = part.get("reasoning")
        if part.get("redacted") is True or not text:
            text = part.get("summary")
            if not text and part.get("redacted") is True:
                self.values.said(place, "what was thought is redacted, and left out")
        return [{"type": "thinking", "thinking": text}] if isinstance(text, str) and text else []

    def _medium(self, kind: str, part: Mapping[str, Any], place: str) -> Any:
        """A medium by its address, which names its type where it has the bytes."""
        address = part.get(kind)
        if isinstance(address, str):
            return {"type": "image", "image": address}
        self.values.lost(place, f"a part of the type {kind} has no {kind}")
        return {"type": "text", "text": json_text(part)}
