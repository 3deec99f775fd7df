"""What `codex exec --json` prints: the items of a thread as they end. It has no prompts of the user, and no results of
changes to files.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from agentworld.ingest.entry import BadDocument, Entry
from agentworld.ingest.format import Notes
from agentworld.ingest.formats.codex_items import Items, Reply
from agentworld.ingest.formats.values import (
    Media,
    bounded,
    count_of,
    is_unique,
    json_text,
    object_of,
    picked,
    text_of,
    usage_of,
)
from agentworld.ingest.run import Note, Run
from agentworld.records import Message, Step

_CALLS = {
    "command_execution": ("command",),
    "file_change": ("changes",),
    "mcp_tool_call": ("arguments",),
    "web_search": ("query",),
    "todo_list": ("items",),
    "collab_tool_call": ("tool", "prompt", "receiver_thread_ids"),
}


class Stream:
    """One stream while it is read."""

    def __init__(self, entry: Entry, note: Notes) -> None:
        self._file = entry.name
        self._note = note
        self._media = Media(self._say)
        self._items = Items(self._say, self._media, self._step)
        self._steps: list[Step] = []
        self._open: dict[str, dict[str, Any]] = {}
        self._turn = 0  # the first step of the turn
        self._failed = False
        self._errors: list[Any] = []
        self._skipped: Counter[str] = Counter()
        self.thread_id: str | None = None
        for place, line in entry.documents():
            if isinstance(line, BadDocument):
                self._say(line.place, line.why)
            elif not isinstance(line, dict):
                self._say(place, f"a line is no object: {type(line).__name__}")
            else:
                self._line(line, place)
        for item_id in list(self._open):
            self._say("$", f"item {bounded(item_id, 60)} began and did not end", lost=False)
            self._ended(self._open[item_id], "$")
        self._items.close()

    def run(self) -> Run:
        """What was read."""
        said = {"errors": self._errors, "skipped": dict(self._skipped)}
        told = len(self._items.steps) - next(
            (n for n, step in enumerate(reversed(self._items.steps)) if step is not None), len(self._items.steps)
        )
        return Run(
            native_id=self.thread_id if is_unique(self.thread_id) else None,
            session=None if is_unique(self.thread_id) else self.thread_id,
            steps=self._steps,
            status="failed" if self._failed else "finished",
            trailing=self._items.messages[told:],
            media=self._media.found,
            agent="codex",
            metadata={"stream": True} | {name: value for name, value in said.items() if value},
        )

    def _say(self, place: str, why: str, *, hint: str | None = None, lost: bool = True) -> None:
        self._note(Note(file=self._file, place=place, why=why, hint=hint, lost=lost))

    def _line(self, line: dict[str, Any], place: str) -> None:
        kind, item = line.get("type"), line.get("item")
        if kind == "thread.started":
            self.thread_id = text_of(line.get("thread_id")) or self.thread_id
        elif kind in ("item.started", "item.updated") and isinstance(item, dict):
            if isinstance(item.get("id"), str) and text_of(item.get("type")) in _CALLS:
                self._open[item["id"]] = item
        elif kind == "item.completed" and isinstance(item, dict):
            self._ended(item, place)
        elif kind in ("turn.completed", "turn.failed"):
            self._items.close()
            self._failed = kind == "turn.failed"
            if self._failed:
                self._errors.append(bounded(object_of(line.get("error")).get("message")))
            self._counted(object_of(line.get("usage")))
        elif kind == "turn.started":
            self._turn = len(self._steps)
        elif kind == "error":
            self._failed = True
            self._errors.append(bounded(line.get("message")))
        else:
            self._skipped[str(bounded(kind, 60))] += 1
            if not isinstance(kind, str):
                self._say(place, "a line has no type")

    def _ended(self, item: dict[str, Any], place: str) -> None:
        kind, item_id = item.get("type"), text_of(item.get("id"))
        self._open.pop(item_id or "", None)
        text = text_of(item.get("text"))
        if kind == "reasoning" and text is not None:
            self._items.thought(text, place, 0.0)
        elif kind in ("agent_message", "assistant_message") and text is not None:
            self._items.text(text, place, 0.0)
        elif kind == "error":
            self._errors.append(bounded(item.get("message")))
        elif isinstance(kind, str) and kind in _CALLS:
            self._called(kind, item, item_id, place)
        else:
            self._say(place, f"an item of type {bounded(kind, 60)!r} is not read")

    def _called(self, kind: str, item: dict[str, Any], item_id: str | None, place: str) -> None:
        name, given = kind, {field: item.get(field) for field in _CALLS[kind]}
        if kind == "mcp_tool_call":
            name = "__".join(t for field in ("server", "tool") if (t := text_of(item.get(field))))
            given = object_of(item.get("arguments"))
        call_id = self._items.call(name, json_text(given), place, 0.0, item_id)
        said = item.get("aggregated_output")
        if kind == "mcp_tool_call":
            said = item.get("result") if item.get("result") is not None else item.get("error")
        if said is not None:
            self._items.result(call_id, self._items.content(said, place), place)

    def _step(self, reply: Reply, message: Message, before: list[Message]) -> str:
        key = str(len(self._steps))
        self._steps.append(
            Step(
                step_id=key,
                trajectory_id="",
                parent_step_id=str(len(self._steps) - 1) if self._steps else None,
                dialect="responses",
                prompt_messages=before,
                response_message=message,
            )
        )
        return key

    def _counted(self, usage: dict[str, Any]) -> None:
        """The tokens of a turn: of its reply, where it has one."""
        of_turn = self._steps[self._turn :]
        if len(of_turn) == 1:
            of_turn[0].usage = usage_of(count_of(usage.get("input_tokens")), count_of(usage.get("output_tokens")))
        elif of_turn:
            of_turn[-1].metadata["usage_of_turn"] = picked(
                usage, ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens")
            )
