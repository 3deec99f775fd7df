"""OpenHands V0 (OpenDevin): events that are an `action` or an `observation` -> a conversation.

With function calling, an event has the whole reply of the model; without it, the action itself is the call. In the
first versions the arguments stand beside the action's name.
"""

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
    count_of,
    json_text,
    list_of,
    name_of,
    object_of,
    seconds_of,
    text_of,
    usage_of,
)
from agentworld.records import MediaPart, Message, TextPart

_SILENT_ACTIONS = frozenset({"change_agent_state", "null", "recall", "condensation_request", "loop_recovery"})
_SILENT = frozenset({"agent_state_changed", "null", "recall", "agent_condensation", "server_ready"})
_BESIDE = frozenset(
    {
        "action", "action_risk", "blocking", "cause", "confirmation_state", "hidden", "id", "is_confirmed",
        "keep_prompt", "kernel_init_code", "message", "security_risk", "source", "thought", "timeout", "timestamp",
        "tool_call_metadata", "translated_ipython_code",
    }
)  # fmt: skip


def is_event(value: Any) -> bool:
    """Whether a value is an event of V0: an action or an observation, and not both."""
    if not isinstance(value, dict) or "role" in value:
        return False
    action, observation = value.get("action"), value.get("observation")
    if isinstance(action, str) == isinstance(observation, str):
        return False
    named = action if isinstance(action, str) else observation
    return bool(named) and len(str(named)) < 60 and "\n" not in str(named) and ("content" in value or len(value) > 1)


class Events:
    """Reads events in their order."""

    def __init__(self, steps: Steps, say: Say, media: Media) -> None:
        self._say = say
        self._media = media
        self._steps = steps
        self._history = History(steps)
        self._outer: list[tuple[History, str]] = []  # who delegated, and with which call
        self._call_of: dict[str, str] = {}  # action's event -> its call
        self._open: dict[str, None] = {}  # calls without a result, in order
        self._begun = False
        self.skipped: Counter[str] = Counter()
        self.errors: list[Any] = []
        self.failed = False
        self.state: str | None = None

    def read(self, event: dict[str, Any], place: str) -> None:
        """Read one event."""
        name = str(event["id"]) if isinstance(event.get("id"), (int, str)) else place
        if isinstance(event.get("action"), str):
            self._action(event, object_of(event.get("args")) or event, name, place)
        else:
            self._observation(event, name, place)

    def end(self) -> None:
        """Nothing more comes."""
        while self._outer:
            self._history.end()
            self._history, _ = self._outer.pop()
        self._history.end()

    def _action(self, event: dict[str, Any], args: dict[str, Any], name: str, place: str) -> None:
        kind = event["action"]
        if kind == "system":
            self._history.say(Message(role="system", content=text_of(args.get("content")) or ""), name)
            tools = [tool for tool in list_of(args.get("tools")) if isinstance(tool, dict) and "function" in tool]
            self._history.tools = tools or None
        elif kind == "condensation":
            self._condensation(args, name)
        elif kind in _SILENT_ACTIONS:
            self.skipped[f"action/{kind}"] += 1
            if kind == "change_agent_state":
                self.state = text_of(args.get("agent_state")) or self.state
        elif self._is_users(event, args):
            self._begun = True
            self._users(event, args, name, place)
        else:
            self._begun = True
            self._reply(event, args, name, place)

    def _is_users(self, event: dict[str, Any], args: dict[str, Any]) -> bool:
        source = event.get("source")
        if isinstance(source, str):
            return source == "user"
        # The first versions do not say: an agent waits for an answer, and it does not begin.
        return event["action"] == "message" and (not self._begun or args.get("wait_for_response") is not True)

    def _users(self, event: dict[str, Any], args: dict[str, Any], name: str, place: str) -> None:
        if event["action"] == "message":
            parts: list[TextPart | MediaPart] = [TextPart(text=text_of(args.get("content")) or "")]
            for field in ("image_urls", "images_urls"):
                parts += [self._media.url(url, place) for url in list_of(args.get(field))]
            self._history.say(Message(role="user", content=content_of(parts)), name)
            return
        ran = next((args[each] for each in ("command", "code") if isinstance(args.get(each), str)), None)
        said = ran if ran is not None else json_text({key: args[key] for key in args if key not in _BESIDE})
        self._history.say(Message(role="user", content=f"{event['action']}: {said}"), name)

    def _reply(self, event: dict[str, Any], args: dict[str, Any], name: str, place: str) -> None:
        told = object_of(event.get("tool_call_metadata"))
        response = object_of(told.get("model_response"))
        choice = object_of(next(iter(list_of(response.get("choices"))), None))
        message = object_of(choice.get("message"))
        call_id = text_of(told.get("tool_call_id"))
        response_id = text_of(response.get("id"))
        if message and response_id is not None and self._history.has_ended(response_id):
            if call_id is not None:  # a further call of a reply that is there
                self._call_of[name] = call_id
            return
        reply = self._history.reply(response_id, name, seconds_of(event.get("timestamp")))
        if message and reply.message is None:
            self._whole(reply, response, choice, message, place)
        if reply.message is not None:
            calls = [call.id for call in reply.message.tool_calls]
            if call_id is not None and call_id not in calls:
                self._say(place, f"the reply has no call {bounded(call_id, 60)}, which this event names", lost=False)
            call_id = call_id if call_id is not None else next(iter(calls), None)
        elif event["action"] == "message":
            reply.texts.append(text_of(args.get("content")) or "")
        else:
            thought = text_of(args.get("thought"))
            if thought:
                reply.texts.append(thought)
            given = {key: each for key, each in args.items() if key not in _BESIDE}
            named = text_of(told.get("function_name")) or event["action"]
            call_id = self._history.call(reply, named, json_text(given), call_id)
        if call_id is not None:
            self._call_of[name] = call_id
            self._open[call_id] = None
        state = args.get("confirmation_state", args.get("is_confirmed"))
        if state == "rejected":
            reply.notes.setdefault("rejected", []).append(bounded(call_id, 100))
        if event["action"] == "delegate":
            self._delegate(args, call_id or "")

    def _whole(
        self, reply: Reply, response: dict[str, Any], choice: dict[str, Any], message: dict[str, Any], place: str
    ) -> None:
        """The reply as the model gave it."""
        said = message.get("content")
        parts = [text_of(object_of(part).get("text")) or "" for part in list_of(said)]
        content = said if isinstance(said, str) else "".join(parts) if parts else None
        made = Reply(reply.response_id, reply.at)
        for value in list_of(message.get("tool_calls")):
            call = object_of(value)
            function = object_of(call.get("function"))
            given, name = function.get("arguments"), text_of(function.get("name"))
            if name is None:
                self._say(place, "a tool call has no name")
            arguments = given if isinstance(given, str) else "" if given is None else json_text(given)
            self._history.call(made, name or "", arguments, text_of(call.get("id")))
        reply.message = Message(
            role="assistant",
            content=content if content is not None or made.calls else "",
            reasoning=text_of(message.get("reasoning_content")) or None,
            tool_calls=tuple(made.calls),
        )
        usage = object_of(response.get("usage"))
        reply.usage = usage_of(count_of(usage.get("prompt_tokens")), count_of(usage.get("completion_tokens")))
        reply.model = name_of(response.get("model"))
        reply.finish = name_of(choice.get("finish_reason"))

    def _delegate(self, args: dict[str, Any], call_id: str) -> None:
        """What follows is another agent's, up to the observation of its end."""
        self._history.close()
        self._outer.append((self._history, call_id))
        agent = name_of(args.get("agent"))
        self._history = History(self._steps, agent=agent, parent=self._history.last)

    def _condensation(self, args: dict[str, Any], name: str) -> None:
        ids = args.get("forgotten_event_ids")
        forgotten = {str(each) for each in list_of(ids)}
        first, last = args.get("forgotten_events_start_id"), args.get("forgotten_events_end_id")
        if type(first) is int and type(last) is int:
            # Of a range only what is there counts, however long it says that it is.
            forgotten |= {each for each in self._history.events() if each.isdecimal() and first <= int(each) <= last}
        self._history.condense(forgotten, text_of(args.get("summary")), args.get("summary_offset"), f"{name}-summary")

    def _observation(self, event: dict[str, Any], name: str, place: str) -> None:
        kind = event["observation"]
        extras = object_of(event.get("extras"))
        if kind in _SILENT:
            self.skipped[f"observation/{kind}"] += 1
            if kind == "agent_state_changed":
                self.state = text_of(extras.get("agent_state")) or self.state
            return
        if kind == "delegate" and self._outer:
            self._history.end()
            self._history, call = self._outer.pop()
            self._history.result(call or None, self._content(event, extras, place), name)
            return
        content = self._content(event, extras, place)
        cause = event.get("cause")
        told = object_of(event.get("tool_call_metadata"))
        call_id = text_of(told.get("tool_call_id")) or self._call_of.get(str(cause))
        if call_id is None and cause is None and event.get("source") is None and self._open:
            call_id = next(iter(self._open))  # The first versions say only by their order what an observation is of.
        if call_id is None:
            self._history.say(Message(role="user", content=content), name)
            return
        self._open.pop(call_id, None)
        self._history.result(call_id, content, name)
        if kind == "error" or event.get("success") is False:
            self._history.note("tool_error", call_id)

    def _content(self, event: dict[str, Any], extras: dict[str, Any], place: str) -> Content:
        said = event.get("content")
        if said is None and "outputs" in {**event, **extras}:
            said = json_text({**event, **extras}["outputs"])
        parts: list[TextPart | MediaPart] = [TextPart(text=said if isinstance(said, str) else json_text(said))]
        for image in (extras.get("set_of_marks") or extras.get("screenshot"), *list_of(extras.get("image_urls"))):
            if isinstance(image, str) and image:
                parts.append(self._media.url(image, place))
        return content_of(parts)
