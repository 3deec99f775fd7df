"""A conversation of OpenHands while its events are read: what the model sees next, and the steps that were made.

Calls of one reply come as several events, and results follow them. A condensation takes events out of the view and puts
a summary among the rest.
"""

from __future__ import annotations

from typing import Any

from agentworld.ingest.formats import values
from agentworld.ingest.formats.noted import as_finite
from agentworld.ingest.formats.values import (
    Content,
    bounded,
    count_of,
    list_of,
    object_of,
    ordered_results,
    usage_of,
)
from agentworld.records import FunctionCall, Message, Step, Tool, ToolCall, Usage
from agentworld.records.step import ForkReason


class Reply:
    """One reply while its events are read. `message`: where an event has it whole."""

    def __init__(self, response_id: str | None, at: float) -> None:
        self.response_id = response_id
        self.at = at
        self.events: set[str] = set()
        self.message: Message | None = None
        self.texts: list[str] = []
        self.thoughts: list[str] = []
        self.calls: list[ToolCall] = []
        self.model: str | None = None
        self.usage: Usage | None = None
        self.finish: str | None = None
        self.notes: dict[str, Any] = {}

    def said(self) -> Message:
        """The reply as one message."""
        if self.message is not None:
            return self.message
        return Message(
            role="assistant",
            content="".join(self.texts) if self.texts or not self.calls else None,
            reasoning="".join(self.thoughts) or None,
            tool_calls=tuple(self.calls),
        )


class _Said:
    """A message in the view. `events`: that it was read from. `told`: a prompt holds it."""

    __slots__ = ("events", "message", "told")

    def __init__(self, message: Message, events: set[str], told: bool = False) -> None:
        self.message = message
        self.events = events
        self.told = told


class Steps:
    """The steps of a run, over the conversations of its agents. `usage`, `latency`: by the id of a reply."""

    def __init__(self) -> None:
        self.all: list[Step] = []
        self.untold: list[Message] = []
        self.model: str | None = None
        self.usage: dict[str, Usage] = {}
        self.latency: dict[str, float] = {}
        self.made = 0
        self.shown = 0  # messages in prompts
        self.too_many = False

    def made_id(self) -> str:
        """An id for a call that has none."""
        self.made += 1
        return f"call_{self.made}"


class History:
    """One agent's conversation. `parent`: the step that began it, of a sub-agent."""

    def __init__(self, steps: Steps, *, agent: str | None = None, parent: str | None = None) -> None:
        self._steps = steps
        self._agent = agent
        self._last = parent
        self._reason: ForkReason | None = "subagent" if parent is not None else None
        self._view: list[_Said] = []
        self._reply: Reply | None = None
        self._results: list[tuple[Message, str]] = []
        self._calls: list[str] = []  # of the last reply
        self._notes: dict[str, Any] = {}
        self._ended: set[str] = set()
        self.tools: list[Tool] | None = None

    @property
    def last(self) -> str | None:
        """The key of the last step."""
        return self._last

    def has_ended(self, response_id: str | None) -> bool:
        """Whether the reply with an id was read, and something else came after it."""
        return response_id in self._ended

    def say(self, message: Message, event: str) -> None:
        """What somebody else than the model said."""
        self.close()
        self._view.append(_Said(message, {event}))

    def note(self, name: str, value: Any) -> None:
        """Something for the metadata of the step that is being read, else of the next."""
        notes = self._notes if self._reply is None else self._reply.notes
        notes[name] = bounded(value)

    def reply(self, response_id: str | None, event: str, at: float) -> Reply:
        """The reply that an event is of: the one that is being read, where it has the same id."""
        if self._reply is None or response_id is None or self._reply.response_id != response_id:
            self.close()
            self._reply = Reply(response_id, at)
        self._reply.events.add(event)
        return self._reply

    def call(self, reply: Reply, name: str, arguments: str, call_id: str | None) -> str:
        """Add a call to a reply; its id."""
        call_id = call_id or self._steps.made_id()
        reply.calls.append(ToolCall(id=call_id, function=FunctionCall(name, arguments)))
        return call_id

    def result(self, call_id: str | None, content: Content, event: str) -> None:
        """A result of a call."""
        self._results.append((Message(role="tool", content=content, tool_call_id=call_id), event))

    def close(self) -> None:
        """End the reply that is being read."""
        reply, self._reply = self._reply, None
        if reply is not None:
            self._step(reply)
        if self._results:
            events = {id(message): event for message, event in self._results}
            for message in ordered_results([message for message, _ in self._results], self._calls):
                self._view.append(_Said(message, {events[id(message)]}))
            self._results = []

    def condense(self, forgotten: set[str], summary: str | None, offset: Any, event: str) -> None:
        """Take events out of the view, and put a summary there, which is known as `event`."""
        self.close()
        kept = []
        for said in self._view:
            if said.events <= forgotten:
                if not said.told:
                    self._steps.untold.append(said.message)
            else:
                kept.append(said)
        if summary is not None:
            place = offset if type(offset) is int and 0 <= offset <= len(kept) else len(kept)
            kept.insert(place, _Said(Message(role="user", content=summary), {event}))
        self._view = kept
        self._reason = "compaction"
        self._notes["condensation"] = {"forgotten": len(forgotten)}

    def events(self) -> set[str]:
        """The events that the view holds."""
        return {event for said in self._view for event in said.events}

    def end(self) -> None:
        """Nothing more comes; what no reply has seen is told at the end of the run."""
        self.close()
        self._steps.untold += [said.message for said in self._view if not said.told]

    def _step(self, reply: Reply) -> None:
        steps = self._steps
        message = reply.said()
        if steps.shown > values.MAX_PROMPTS:
            steps.too_many = True
            self._view.append(_Said(message, reply.events))
            return
        steps.shown += len(self._view)
        for said in self._view:
            said.told = True
        known = reply.response_id or ""
        self._ended.add(known)
        notes = self._notes | reply.notes
        if reply.response_id is not None:
            notes["response_id"] = bounded(reply.response_id, 200)
        key = str(len(steps.all))
        steps.all.append(
            Step(
                step_id=key,
                trajectory_id="",
                parent_step_id=self._last,
                fork_reason=self._reason,
                agent=self._agent,
                model=reply.model or steps.model,
                prompt_messages=[said.message for said in self._view],
                tools=self.tools,
                response_message=message,
                usage=reply.usage or steps.usage.get(known),
                latency_ms=steps.latency.get(known),
                finish_reason=reply.finish,
                created_at=reply.at,
                metadata=notes,
            )
        )
        self._view.append(_Said(message, reply.events, told=True))
        self._calls = [call.id for call in message.tool_calls]
        self._last, self._reason, self._notes = key, None, {}


def counted(metrics: dict[str, Any], steps: Steps) -> None:
    """Take token counts and latencies by reply from OpenHands' metrics."""
    for told in map(object_of, list_of(metrics.get("token_usages"))):
        usage = usage_of(count_of(told.get("prompt_tokens")), count_of(told.get("completion_tokens")))
        if isinstance(told.get("response_id"), str) and usage is not None:
            steps.usage[told["response_id"]] = usage
    for told in map(object_of, list_of(metrics.get("response_latencies"))):
        seconds = as_finite(told.get("latency"))
        if isinstance(told.get("response_id"), str) and seconds is not None and 0 <= seconds < 1e7:
            steps.latency[told["response_id"]] = seconds * 1000.0
