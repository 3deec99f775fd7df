"""OpenHands V1: events of the agent SDK, each with a `kind` -> a conversation."""

from __future__ import annotations

from collections import Counter
from typing import Any

from agentworld.ingest.formats.openhands_history import History, Reply, Steps
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
    picked,
    seconds_of,
    text_of,
)
from agentworld.records import MediaPart, Message, TextPart, Tool

_REJECTED = "Action rejected: "


def is_event(value: Any) -> bool:
    """Whether a value is an event of V1."""
    return isinstance(value, dict) and isinstance(value.get("kind"), str) and "source" in value and "id" in value


class Events:
    """Reads events in their order."""

    def __init__(self, steps: Steps, say: Say, media: Media) -> None:
        self._say = say
        self._media = media
        self._steps = steps
        self._history = History(steps)
        self._call_of: dict[str, str] = {}  # action's event -> its call
        self.skipped: Counter[str] = Counter()
        self.errors: list[Any] = []
        self.failed = False

    def read(self, event: dict[str, Any], place: str) -> None:
        """Read one event."""
        kind = str(event.get("kind")).rpartition(".")[2]
        name = text_of(event.get("id")) or place
        if kind == "SystemPromptEvent":
            self._system(event, name, place)
        elif kind == "MessageEvent":
            self._message(event, name, place)
        elif kind == "ActionEvent":
            self._action(event, name, place)
        elif kind == "ObservationEvent":
            self._result(event, name, self._observed(event.get("observation"), place))
        elif kind == "UserRejectObservation":
            reason = text_of(event.get("rejection_reason"))
            self._history.note("rejected", reason or "")
            self._result(event, name, _REJECTED + (reason or ""))
        elif kind == "AgentErrorEvent":
            self._result(event, name, text_of(event.get("error")) or json_text(event.get("error")))
        elif kind == "Condensation":
            forgotten = {each for each in list_of(event.get("forgotten_event_ids")) if isinstance(each, str)}
            summary = text_of(event.get("summary"))
            self._history.condense(forgotten, summary, event.get("summary_offset"), f"{name}-summary")
        elif kind == "CondensationSummaryEvent":
            self._history.say(Message(role="user", content=text_of(event.get("summary")) or ""), name)
        else:
            self.skipped[str(bounded(kind, 60))] += 1
            if kind == "ConversationErrorEvent":
                self.failed = True
                self.errors.append(picked(event, ("code", "detail")))

    def end(self) -> None:
        """Nothing more comes."""
        self._history.end()

    def _system(self, event: dict[str, Any], name: str, place: str) -> None:
        parts = [object_of(event.get(each)).get("text") for each in ("system_prompt", "dynamic_context")]
        texts: list[TextPart | MediaPart] = [TextPart(text=text) for text in parts if isinstance(text, str)]
        self._history.say(Message(role="system", content=content_of(texts)), name)
        tools = [tool for each in list_of(event.get("tools")) if (tool := _tool(each)) is not None]
        self._history.tools = tools or None

    def _message(self, event: dict[str, Any], name: str, place: str) -> None:
        told = object_of(event.get("llm_message"))
        role = told.get("role")
        if role == "assistant" or (role is None and event.get("source") == "agent"):
            reply = self._history.reply(text_of(event.get("llm_response_id")), name, seconds_of(event.get("timestamp")))
            reply.texts.append(self._text(told.get("content"), place))
            self._thought(told, reply)
            for call in list_of(told.get("tool_calls")):
                self._called(object_of(call), reply, place)
            return
        parts = self._parts(told.get("content"), place) + self._parts(event.get("extended_content"), place)
        if role == "tool":
            self._result({**event, "tool_call_id": told.get("tool_call_id")}, name, content_of(parts))
            return
        if role not in ("user", "system", "developer", None):
            self._say(place, f"a message has the role {bounded(role, 60)!r}; it is read as the user's", lost=False)
        named = "system" if role == "system" else "developer" if role == "developer" else "user"
        self._history.say(Message(role=named, content=content_of(parts)), name)  # type: ignore[arg-type]

    def _action(self, event: dict[str, Any], name: str, place: str) -> None:
        reply = self._history.reply(text_of(event.get("llm_response_id")), name, seconds_of(event.get("timestamp")))
        thought = list_of(event.get("thought"))
        if thought:
            reply.texts.append(self._text(thought, place))
        self._thought(event, reply)
        told = object_of(event.get("tool_call"))
        if not told:
            # Without the call as it was sent, the action says what it was.
            action = dict(object_of(event.get("action")))
            kind = action.pop("kind", None)
            told = {"name": event.get("tool_name") or kind, "arguments": json_text(action)}
        call = self._called({**told, "id": told.get("id") or event.get("tool_call_id")}, reply, place)
        self._call_of[name] = call
        notes = picked(event, ("security_risk", "summary"), 200)
        if notes:
            reply.notes.setdefault("calls", {})[bounded(call, 100)] = notes

    def _called(self, told: dict[str, Any], reply: Reply, place: str) -> str:
        function = object_of(told.get("function")) or told
        name, given = text_of(function.get("name")), function.get("arguments")
        if name is None:
            self._say(place, "a tool call has no name")
        arguments = given if isinstance(given, str) else "" if given is None else json_text(given)
        return self._history.call(reply, name or "", arguments, text_of(told.get("id")))

    def _result(self, event: dict[str, Any], name: str, content: Content) -> None:
        call = text_of(event.get("tool_call_id")) or self._call_of.get(str(event.get("action_id")))
        self._history.result(call, content, name)
        if object_of(event.get("observation")).get("is_error") is True:
            self._history.note("tool_error", call or "")

    def _thought(self, told: dict[str, Any], reply: Reply) -> None:
        text = text_of(told.get("reasoning_content"))
        if not text:
            blocks = map(object_of, list_of(told.get("thinking_blocks")))
            text = "".join(said for block in blocks if isinstance(said := block.get("thinking"), str))
        if text:
            reply.thoughts.append(text)

    def _observed(self, value: Any, place: str) -> Content:
        told = object_of(value)
        if isinstance(told.get("content"), (list, str)):
            return content_of(self._parts(told["content"], place))
        for name in ("output", "error", "message", "result"):
            if isinstance(told.get(name), (str, list)) and told[name]:
                return content_of(self._parts(told[name], place))
        return json_text({key: each for key, each in told.items() if key != "kind"})

    def _text(self, value: Any, place: str) -> str:
        return "".join(part.text for part in self._parts(value, place) if isinstance(part, TextPart))

    def _parts(self, value: Any, place: str) -> list[TextPart | MediaPart]:
        if isinstance(value, str):
            return [TextPart(text=value)]
        parts: list[TextPart | MediaPart] = []
        for position, each in enumerate(list_of(value)):
            part, where = object_of(each), f"{place}, content[{position}]"
            if isinstance(each, str) or isinstance(part.get("text"), str):
                parts.append(TextPart(text=each if isinstance(each, str) else part["text"]))
            elif part.get("type") == "image":
                parts += [self._media.url(url, where) for url in list_of(part.get("image_urls"))]
            else:
                self._say(where, f"kept as its JSON: {json_text(each)[:60]}", lost=False)
                parts.append(TextPart(text=json_text(each)))
        return parts


def _tool(value: Any) -> Tool | None:
    """A tool in OpenAI chat's shape, which most files have."""
    told = object_of(value)
    if isinstance(told.get("function"), dict):
        return {"type": "function", "function": told["function"]}
    name = name_of(told.get("name")) or name_of(told.get("title"))
    if name is None:
        return None
    function = {"name": name, "description": told.get("description")}
    parameters = told.get("parameters", told.get("input_schema"))
    if isinstance(parameters, dict):
        function["parameters"] = parameters
    return {"type": "function", "function": {key: each for key, each in function.items() if each is not None}}
