"""One thread of Codex: the lines of a rollout file, replayed as Codex replays them when it resumes.

A compaction puts another history in the place of the one before; a roll-back takes turns away. Events only repeat what
items say; where a text stands in an event alone, it is read from there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from agentworld.ingest.entry import BadDocument, Entry
from agentworld.ingest.format import Notes
from agentworld.ingest.formats import values
from agentworld.ingest.formats.codex_items import KINDS, Items, Reply
from agentworld.ingest.formats.codex_records import Record, texts_of
from agentworld.ingest.formats.noted import as_finite
from agentworld.ingest.formats.values import (
    TOO_MANY,
    Media,
    bounded,
    content_of,
    count_of,
    list_of,
    name_of,
    object_of,
    picked,
    seconds_of,
    text_of,
    usage_of,
)
from agentworld.ingest.run import Note
from agentworld.records import MediaPart, Message, Step, TextPart
from agentworld.records.trajectory import TerminalStatus

_KEPT = 50
# How messages begin that Codex itself writes in the user's place; they begin no turn.
_CONTEXT = (
    "# AGENTS.md instructions", "<apps_instructions>", "<environment_context>", "<permissions instructions>",
    "<skill", "<subagent_notification>", "<turn_aborted>", "<user_instructions>", "<user_shell_command>",
)  # fmt: skip
_ENDS: dict[str, TerminalStatus] = {
    "error": "failed",
    "task_complete": "finished",
    "task_started": "finished",
    "turn_aborted": "abandoned",
    "turn_complete": "finished",
    "turn_started": "finished",
    "user_message": "finished",
}


class Thread:
    """A rollout file. `thread_id`: its own; `parent`: of the thread that began it; `forked`: of the one whose lines it
    begins with.
    """

    def __init__(self, entry: Entry, note: Notes) -> None:
        self.file = entry.name
        self._note = note
        self.meta: dict[str, Any] = {}
        self.records = list(self._read(entry))
        self.thread_id = text_of(self.meta.get("id")) or text_of(self.meta.get("session_id"))
        source = object_of(object_of(self.meta.get("source")).get("subagent"))
        spawn = object_of(source.get("thread_spawn"))
        said = object_of(self.meta.get("source")).get("subagent")
        self.is_sub_agent = said is not None or isinstance(self.meta.get("parent_thread_id"), str)
        self.parent = text_of(self.meta.get("parent_thread_id")) or text_of(spawn.get("parent_thread_id"))
        self.forked = text_of(self.meta.get("forked_from_id"))
        told = (spawn.get("agent_role"), spawn.get("agent_nickname"), source.get("other"), said)
        self.agent = next((name for each in told if (name := name_of(each)) is not None), None)
        self.items = [record.payload for record in self.records if record.kind == "response_item"]
        self.media = Media(self.say)
        self.steps: list[Step] = []
        self.trailing: list[Message] = []
        self.replies: list[str | None] = []  # the step of each reply, in order
        self.step_of_call: dict[str, str] = {}
        self.spawned: dict[str, str] = {}  # thread -> the call that began it
        self.spawning: set[str] = set()  # calls that begin threads
        self.told: list[tuple[str, str]] = []  # short outputs, by their calls
        self.status: TerminalStatus = "finished"
        self.notes: dict[str, Any] = {}
        self.times = [record.at for record in self.records if record.at]

    def say(self, place: str, why: str, *, hint: str | None = None, lost: bool = True) -> None:
        """A note on the file."""
        self._note(Note(file=self.file, place=place, why=why, hint=hint, lost=lost))

    def _read(self, entry: Entry) -> Iterator[Record]:
        for place, line in entry.documents():
            if isinstance(line, BadDocument):
                self.say(line.place, line.why)
                continue
            if not isinstance(line, dict):
                self.say(place, f"a line is no object: {type(line).__name__}")
                continue
            at, kind, payload = seconds_of(line.get("timestamp")), line.get("type"), line.get("payload")
            if isinstance(kind, str) and isinstance(payload, dict):
                if kind == "session_meta":
                    # Those after the first came with the history of the thread that it was forked from.
                    self.meta = self.meta or payload
                yield Record(place, at, kind, payload)
            elif isinstance(kind, str) and kind in KINDS:
                yield Record(place, at, "response_item", line)  # as the first versions wrote it
            elif kind is None and "id" in line and not self.meta:
                self.meta = line
            elif isinstance(kind, str) or "record_type" in line:
                yield Record(place, at, str(kind or "state"), {})
            else:
                self.say(place, f"a line has no type; its keys are {bounded(', '.join(map(str, line)), 100)}")

    def shared_with(self, other: Thread) -> int:
        """How many items both begin with."""
        count = 0
        for mine, its in zip(self.items, other.items, strict=False):
            if mine != its:
                break
            count += 1
        return count

    def build(self, first: int = 0, shared: int = 0, keys: Sequence[str | None] = ()) -> None:
        """Make the steps, with keys from `first` on. The first `shared` items are another thread's, whose replies have
        these keys.
        """
        _Replay(self, first, shared, keys).run()


class _Replay:
    def __init__(self, thread: Thread, first: int, shared: int, keys: Sequence[str | None]) -> None:
        self._thread = thread
        self._first = first
        self._shared = shared
        self._keys = keys
        self._count = 0  # items read
        self._shown = 0  # messages in prompts
        self._told_large = False
        self._model: str | None = None
        self._effort: Any = None
        self._turn: Any = None
        self._totals: Any = None
        self._last: str | None = None  # the step of the last reply
        self._pending: dict[str, Any] = {}  # notes for the next step
        self._compacted = False
        self._rolled = False
        self._from = 0  # how many messages a compaction or a roll-back left
        self._untold: list[Message] = []  # what they took away before a reply had seen it
        self._results: dict[str, dict[str, Any]] = {}
        self._errors: list[Any] = []
        self._titles: list[str] = []
        self._skipped: Counter[str] = Counter()
        self._items = Items(thread.say, thread.media, self._step)
        base = object_of(thread.meta.get("base_instructions")).get("text")
        self._system = [Message(role="system", content=base)] if isinstance(base, str) and base else []
        self._texts = texts_of(thread.records)

    def run(self) -> None:
        thread = self._thread
        for record in thread.records:
            if record.kind == "response_item":
                self._item(record)
            elif record.kind == "event_msg":
                self._event(record)
            elif record.kind == "compacted":
                self._compaction(record)
            elif record.kind == "turn_context":
                self._items.close()
                self._model = name_of(record.payload.get("model")) or self._model
                self._effort = record.payload.get("effort", self._effort)
                self._turn = record.payload.get("turn_id")
            elif record.kind != "session_meta":
                self._skipped[str(bounded(record.kind, 60))] += 1
        self._items.close()
        self._set_aside(0)
        thread.trailing = self._untold
        for step in thread.steps:
            calls = step.response_message.tool_calls if step.response_message is not None else ()
            notes = {call.id: self._results[call.id] for call in calls if call.id in self._results}
            if notes:
                step.metadata["tool_results"] = dict(list(notes.items())[:_KEPT])
        skipped = self._skipped + self._items.skipped
        said = {"skipped": dict(skipped.most_common(_KEPT)), "errors": self._errors, "titles": self._titles}
        thread.notes = {name: value for name, value in said.items() if value}

    def _set_aside(self, start: int) -> None:
        """Keep what no reply has seen of the messages from `start` on, which are about to go."""
        steps, told = self._items.steps, len(self._items.steps)
        while told > start and steps[told - 1] is None:
            told -= 1
        self._untold += self._items.messages[max(told, self._from) :]

    def _item(self, record: Record) -> None:
        self._items.read(record.payload, record.place, record.at)
        self._count += 1
        kind = record.payload.get("type")
        if kind == "function_call_output" or kind == "custom_tool_call_output":
            call, said = text_of(record.payload.get("call_id")), text_of(record.payload.get("output"))
            if call is not None and said is not None and len(said) < 10_000:
                self._thread.told.append((call, said))

    def _step(self, reply: Reply, message: Message, before: list[Message]) -> str | None:
        thread = self._thread
        if self._count <= self._shared and len(thread.replies) < len(self._keys):
            key = self._keys[len(thread.replies)]
            thread.replies.append(key)
            self._last = key
            return key
        if self._shown > values.MAX_PROMPTS:
            if not self._told_large:
                self._told_large = True
                thread.say(reply.place, TOO_MANY)
            return None
        self._shown += len(self._system) + len(before)
        parent = self._last if self._compacted else next((s for s in reversed(self._items.steps) if s), None)
        key = str(self._first + len(thread.steps))
        notes = self._pending | picked(
            {"turn": reply.turn or self._turn, "effort": self._effort}, ("turn", "effort"), 200
        )
        if reply.encrypted:
            notes["encrypted_reasoning"] = reply.encrypted
        step = Step(
            step_id=key,
            trajectory_id="",
            parent_step_id=parent,
            fork_reason="compaction" if self._compacted else "history_rewritten" if self._rolled else None,
            model=self._model,
            dialect="responses",
            prompt_messages=[*self._system, *before],
            response_message=message,
            usage=reply.usage,
            created_at=reply.at,
            metadata=notes,
        )
        self._pending, self._compacted, self._rolled = {}, False, False
        thread.steps.append(step)
        thread.replies.append(key)
        for call in message.tool_calls:
            thread.step_of_call.setdefault(call.id, key)
            if "spawn" in call.function.name or "agent" in call.function.name:
                thread.spawning.add(call.id)
        self._last = key
        return key

    def _compaction(self, record: Record) -> None:
        self._items.close()
        self._set_aside(0)
        told = record.payload
        said, given = told.get("message"), told.get("replacement_history")
        fresh = Items(self._thread.say, self._thread.media, self._step)
        fresh.skipped = self._items.skipped
        if isinstance(given, list):
            of_history = Items(self._thread.say, self._thread.media)
            for position, item in enumerate(given):
                of_history.read(object_of(item), f"{record.place}, replacement_history[{position}]")
            of_history.close()
            fresh.skipped += of_history.skipped
            kept = of_history.messages
        else:
            kept = [m for m in self._items.messages if m.role not in ("assistant", "tool")]
            if isinstance(said, str) and said:
                kept.append(Message(role="user", content=said))
        for message in kept:
            fresh.add(message)
        self._items = fresh
        self._from = len(kept)
        self._compacted = True
        self._pending["compaction"] = picked(told, ("window_number", "message"), 200)

    def _roll_back(self, turns: int) -> None:
        self._items.close()
        messages, steps = self._items.messages, self._items.steps
        cut, found = len(messages), 0
        for place in range(len(messages) - 1, -1, -1):
            if messages[place].role == "user" and not messages[place].text.startswith(_CONTEXT):
                cut, found = place, found + 1
                if found >= turns:
                    break
        if turns and found:
            self._set_aside(cut)
            taken = any(step is not None for step in steps[cut:])
            del messages[cut:], steps[cut:]
            self._from = min(self._from, cut)
            if taken:
                self._last = next((step for step in reversed(steps) if step is not None), self._last)
            self._rolled = True
            self._pending["rolled_back"] = turns

    def _event(self, record: Record) -> None:
        told = record.payload
        kind = told.get("type")
        ending = _ENDS.get(kind) if isinstance(kind, str) else None
        if ending is not None:
            self._thread.status = ending
        if kind == "token_count":
            self._tokens(told)
        elif kind == "thread_rolled_back":
            self._roll_back(count_of(told.get("num_turns")))
        elif kind in ("user_message", "agent_message", "agent_reasoning", "agent_reasoning_raw_content"):
            self._echo(str(kind), told, record)
        elif kind == "item_completed":
            self._echo_item(object_of(told.get("item")), record)
        else:
            self._skipped[f"event/{bounded(kind, 60)}"] += 1
        if kind in ("task_started", "task_complete", "turn_aborted", "turn_started", "turn_complete"):
            self._items.close()
        elif kind in ("error", "stream_error") and len(self._errors) < _KEPT:
            self._errors.append(bounded(told.get("message")))
        elif kind == "thread_name_updated" and isinstance(told.get("thread_name"), str):
            self._titles.append(str(bounded(told["thread_name"])))
        elif kind == "thread_settings_applied":
            self._model = name_of(object_of(told.get("thread_settings")).get("model")) or self._model
        self._about_calls(told)

    def _about_calls(self, told: dict[str, Any]) -> None:
        """What events tell of calls: how they ended, and which threads they began."""
        call = text_of(told.get("call_id"))
        begun = told.get("new_thread_id")
        if call is not None and isinstance(begun, str):
            self._thread.spawned.setdefault(begun, call)
        if call is not None and isinstance(told.get("exit_code"), int):
            took = object_of(told.get("duration"))
            seconds = (as_finite(took.get("secs")) or 0.0) + (as_finite(took.get("nanos")) or 0.0) / 1e9
            self._results[call] = {"exit_code": bounded(told["exit_code"]), "seconds": seconds}

    def _tokens(self, told: dict[str, Any]) -> None:
        info = object_of(told.get("info"))
        totals, last = info.get("total_token_usage"), object_of(info.get("last_token_usage"))
        if not last or totals == self._totals:
            return
        self._totals = totals
        reply = self._items.reply
        if reply is not None and (reply.parts or reply.calls) and not reply.answered:
            self._items.close()
        elif reply is not None and reply.answered:
            # The calls of this reply were answered before its tokens were counted; more results may follow.
            reply.usage = usage_of(count_of(last.get("input_tokens")), count_of(last.get("output_tokens")))
            return
        steps = self._thread.steps
        if steps and steps[-1].usage is None and self._count > self._shared:
            steps[-1].usage = usage_of(count_of(last.get("input_tokens")), count_of(last.get("output_tokens")))

    def _echo(self, kind: str, told: dict[str, Any], record: Record) -> None:
        """A text that an event has; it is read where no item has it."""
        text = text_of(told.get("message")) if "message" in told else text_of(told.get("text"))
        if text is None:
            return
        if kind == "user_message":
            if self._texts.users(text):
                return
            self._items.close()
            parts: list[TextPart | MediaPart] = [TextPart(text=text)]
            parts += [self._thread.media.url(url, record.place) for url in list_of(told.get("images"))]
            parts += [self._thread.media.url(path, record.place) for path in list_of(told.get("local_images"))]
            self._items.add(Message(role="user", content=content_of(parts)))
        elif kind == "agent_message":
            if text not in self._texts.assistant:
                self._items.text(text, record.place, record.at)
        elif text not in self._texts.reasoning:
            self._items.thought(text, record.place, record.at)

    def _echo_item(self, item: dict[str, Any], record: Record) -> None:
        kind = item.get("type")
        texts = [t for part in list_of(item.get("content")) if (t := text_of(object_of(part).get("text"))) is not None]
        if kind in ("UserMessage", "AgentMessage") and texts:
            named = "user_message" if kind == "UserMessage" else "agent_message"
            self._echo(named, {"message": "".join(texts)}, record)
        else:
            self._skipped[f"event/item_completed/{bounded(kind, 60)}"] += 1
