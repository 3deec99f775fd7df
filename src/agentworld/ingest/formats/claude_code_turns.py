"""Lines of Claude Code's session files -> turns: the lines of one reply are one, and its tools' results are with it.

A reply's calls may stand on several lines, and each result may follow its own call: whatever follows a line of the
reply, or a result of it, follows the whole reply with all its results.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from typing import Any

from agentworld.ingest.formats.claude_code_blocks import Blocks, Reply
from agentworld.ingest.formats.claude_code_lines import Line, Session
from agentworld.ingest.formats.values import Media, bounded, json_text, list_of, object_of, text_of
from agentworld.records import Message, TextPart

_KEPT = 50


class Turn:
    """One turn. `parent`: the turn before it, as the model saw it. `before`: where it came from, where that is another:
    the turn before a compaction, the reply that began a sub-agent. `first`, `last`: its lines, its results' too.
    `said`: the last line of the reply itself. `answered`: calls that have a result. `again`: turns that a compaction
    kept, which stand before this one. `replaced`: calls whose results this turn gives anew. `step`: its step's key.
    `after`: where it is known, what the model sees after it.
    """

    __slots__ = (
        "after", "again", "answered", "before", "compaction", "first", "last", "messages", "notes", "parent",
        "replaced", "reply", "results", "said", "step",
    )  # fmt: skip

    def __init__(self, line: Line, parent: Turn | None) -> None:
        self.first = self.last = self.said = line
        self.parent = parent
        self.before: Turn | None = None
        self.compaction = False
        self.after: list[Message] | None = None
        self.again: list[Turn] = []
        self.messages: list[Message] = []
        self.reply: Reply | None = None
        self.results: list[Message] = []
        self.answered: set[str] = set()
        self.replaced: frozenset[str | None] = frozenset()
        self.notes: dict[str, Any] = {}
        self.step: str | None = None

    def spoken(self, without: frozenset[str | None] = frozenset()) -> list[Message]:
        """Its messages, with the results of its calls in the order of the calls."""
        if not without:
            return [*self.messages, *self.results]
        return [*self.messages, *(result for result in self.results if result.tool_call_id not in without)]

    def untold(self) -> list[Message]:
        """Its messages where no prompt holds it; a reply is told by its step."""
        return self.results if self.reply is not None else self.messages

    def context(self) -> list[Message]:
        """What stood before it when it was said."""
        path, base = self._path()
        replaced = any(each.replaced for each in path)
        if replaced and base is not None:
            path, base = self._path(whole=True)
        without: frozenset[str | None] = frozenset()
        parts: list[list[Message]] = []
        for each in path:
            parts.append(each.spoken(without))
            without = without | each.replaced if each.replaced else without
        messages = list(base or ())
        for part in reversed(parts):
            messages += part
        if self.parent is not None and not self.again and not replaced:
            self.parent.after = messages
        return messages

    def _path(self, whole: bool = False) -> tuple[list[Turn], list[Message] | None]:
        """The turns before it, the last first, up to one of which it is known what stood there after it."""
        path: list[Turn] = []
        turn: Turn | None = self
        while turn is not None:
            path.extend(reversed(turn.again))
            turn = turn.parent
            if turn is not None and turn.after is not None and not whole:
                return path, turn.after
            if turn is not None:
                path.append(turn)
        return path, None


class Turns:
    """The turns of a session in order, and what belongs to none."""

    def __init__(self, session: Session) -> None:
        self.session = session
        media = Media(self._say)
        self.media = media.found
        self.all: list[Turn] = []
        self.of_call: dict[str, Turn] = {}
        self.begun: dict[str, str] = {}  # sub-agent -> the call that began it
        self.prompts: dict[str, deque[str]] = {}  # prompt of a sub-agent -> calls with it
        self.kinds: dict[str, Any] = {}  # such a call -> the type of its sub-agent
        self.errors: list[dict[str, Any]] = []
        self.failed: set[str] = set()  # sessions that end with an error
        self.linked: list[tuple[str, str]] = []  # sessions one of which goes on from the other
        self._line: Line = session.lines[0] if session.lines else Line("", "", {})
        self._blocks = Blocks(self._say, media)
        self._of: dict[int, Turn | None] = {}
        self._replies: dict[tuple[str | None, str], Turn] = {}
        self._pending: dict[tuple[str, str | None], dict[str, None]] = {}  # calls without a result, in order
        self._attached: dict[int, list[Any]] = {}  # what stood before the next reply beside the messages
        self._kept: dict[int, list[Turn]] = {}  # behind a compaction: turns that it kept
        for line in session.lines:
            self._line = line
            self._add(line)
        for turn in self.all:
            if turn.reply is not None:
                turn.messages = [turn.reply.message()]
                if len(turn.results) > 1:
                    places = {call.id: place for place, call in reversed(list(enumerate(turn.reply.calls)))}
                    turn.results.sort(key=lambda result: places.get(result.tool_call_id or "", len(places)))
        del self._blocks  # It holds this, and what holds itself stays until the collector of cycles comes.

    def _say(self, place: str, why: str, *, hint: str | None = None, lost: bool = True) -> None:
        self.session.say(self._line, why, place=place, lost=lost)

    def _add(self, line: Line) -> None:
        up = self._of.get(id(line.parent)) if line.parent is not None else None
        if line.parent is not None and line.parent.session != line.session:
            self.linked.append((line.parent.session, line.session))
        if line.logical is not None and line.logical.session != line.session:
            self.linked.append((line.logical.session, line.session))
        self._of[id(line)] = up
        if line.parent is not None and line.kind != "assistant" and (seen := self._attached.get(id(line.parent))):
            self._attached[id(line)] = seen
        if line.kind == "assistant":
            self._assistant(line, up)
        elif line.kind == "user":
            self._user(line, up)
        elif line.kind == "queued":
            said = object_of(line.data.get("attachment")).get("prompt")
            self._turn(line, up, [Message(role="user", content=self._blocks.content(said, line.place))])
        elif line.kind == "call":
            reply = self._reply(line, up)
            reply.calls.append(self._blocks.call(line.data, line.place))
            self._called(line, reply, from_call=0)
        elif line.kind == "result":
            self._told_result(line, up)
        elif line.kind == "compaction":
            self._compaction(line)
        else:
            self._other(line, up)

    def _turn(self, line: Line, parent: Turn | None, messages: list[Message]) -> Turn:
        turn = Turn(line, parent)
        turn.messages = messages
        if parent is not None and (kept := self._kept.get(id(parent))):
            turn.again = kept
        self.all.append(turn)
        self._of[id(line)] = turn
        if line.agent is None and line.session:
            self.failed.discard(line.session)
        return turn

    def _reply(self, line: Line, up: Turn | None) -> Reply:
        """The reply that a line of it adds to: the one of the same message, where the line follows it."""
        message_id = text_of(line.message.get("id"))
        key = (line.agent, message_id or "")
        found = self._replies.get(key) if message_id is not None else None
        if found is None or found.reply is None or (found is not up and found.parent is not up):
            found = self._turn(line, up, [])
            found.reply = Reply()
            if line.parent is not None and (seen := self._attached.get(id(line.parent))):
                found.notes["attachments"] = seen
            if message_id is not None:
                self._replies[key] = found
        found.last = found.said = line
        self._of[id(line)] = found
        return found.reply

    def _assistant(self, line: Line, up: Turn | None) -> None:
        message = line.message
        synthetic = message.get("model") == "<synthetic>"
        if line.data.get("isApiErrorMessage") is True:
            text = " ".join(t for b in list_of(message.get("content")) if (t := text_of(object_of(b).get("text"))))
            self._error(line, text or text_of(message.get("content")) or "")
            if line.agent is None:
                self.failed.add(line.session)
            return
        if not isinstance(line.data.get("message"), dict):
            self._say(line.place, "a reply has no message")
            return
        if synthetic:
            # What Claude Code says in the model's place; the model sees it afterwards as its own.
            made = Reply()
            self._blocks.into_reply(message.get("content"), line.place, made)
            self._turn(line, up, [made.message(), *made.results])
            return
        reply = self._reply(line, up)
        before = len(reply.calls)
        self._blocks.into_reply(message.get("content"), line.place, reply)
        self._called(line, reply, before)

    def _called(self, line: Line, reply: Reply, from_call: int) -> None:
        turn = self._of[id(line)]
        assert turn is not None
        turn.results += reply.results
        turn.answered.update(result.tool_call_id or "" for result in reply.results)
        reply.results = []
        for call in reply.calls[from_call:]:
            self.of_call[call.id] = turn
            self._pending.setdefault((line.session, line.agent), {})[call.id] = None
            given = _agent_call(call.function.arguments)
            if (prompt := text_of(given.get("prompt"))) is not None:
                self.prompts.setdefault(prompt, deque()).append(call.id)
                self.kinds[call.id] = given.get("subagent_type")

    def _user(self, line: Line, up: Turn | None) -> None:
        if not isinstance(line.data.get("message"), dict):
            self._say(line.place, "a line of the user has no message")
            return
        results, said = self._blocks.user(line.message.get("content"), line.place)
        for result, failed in results:
            up = self._result(line, up, result, failed)
        summary = line.data.get("isCompactSummary") is True
        if said is None:
            if not results:
                return
            self._of[id(line)] = up
            return
        if not summary:
            self._turn(line, up, [said])
            return
        if up is None or not up.compaction:
            up = self._compaction(line)
        kept = self._kept.pop(id(up), [])
        turn = self._turn(line, up, [said])
        if kept:
            self._kept[id(turn)] = kept  # What a compaction kept stands behind its summary.

    def _result(self, line: Line, up: Turn | None, result: Message, failed: bool) -> Turn:
        """Put a result to its reply, where it is the first; anything else is a turn of its own."""
        pending = self._pending.get((line.session, line.agent), {})
        call = result.tool_call_id
        if call is None:
            call = next(iter(pending), None) or self._blocks.made_id()
            result = Message(role="tool", content=result.content, tool_call_id=call)
        pending.pop(call, None)
        self._notes_of(line, call, failed)
        turn = self.of_call.get(call)
        if turn is not None and turn is up and call not in turn.answered:
            turn.answered.add(call)
            turn.results.append(result)
            turn.last = line
            return turn
        if turn is None:
            self._say(line.place, f"no call has the id {bounded(call, 60)} of this result", lost=False)
        own = self._turn(line, up, [result])
        if line.parent is not None and line.parent.kind == "assistant":
            own.replaced = frozenset((call,))  # It was said instead of the first one, not after it.
        return own

    def _told_result(self, line: Line, up: Turn | None) -> None:
        """A result on a line of its own, as some files have it."""
        data = line.data
        said = next((data[name] for name in ("output", "content", "result") if name in data), None)
        content = "" if said is None else self._blocks.content(said, line.place)
        call = text_of(data.get("tool_use_id")) or text_of(data.get("toolUseId"))
        message = Message(role="tool", content=content, tool_call_id=call)
        self._of[id(line)] = self._result(line, up, message, data.get("is_error") is True)

    def _notes_of(self, line: Line, call: str, failed: bool) -> None:
        notes: dict[str, Any] = {"is_error": True} if failed else {}
        if told := line.told:
            notes |= {
                name: bounded(value, 200) for name, value in told.items() if value is not None and value is not False
            }
            if isinstance(told.get("agentId"), str):
                self.begun.setdefault(told["agentId"], call)
        turn = self.of_call.get(call)
        if notes and turn is not None:
            kept = turn.notes.setdefault("tool_results", {})
            if len(kept) < _KEPT:
                kept[bounded(call, 100)] = notes

    def _compaction(self, line: Line) -> Turn:
        """The conversation begins anew, and tells where it came from."""
        turn = Turn(line, None)
        turn.compaction = True
        turn.before = self._of.get(id(line.logical)) if line.logical is not None else None
        told = object_of(line.data.get("compactMetadata"))
        turn.notes = {name: bounded(told[name], 100) for name in ("trigger", "preTokens", "postTokens") if name in told}
        self._of[id(line)] = turn
        kept = object_of(told.get("preservedMessages")).get("uuids")
        segment = object_of(told.get("preservedSegment"))
        again = self._named(line, kept) if isinstance(kept, list) else self._between(line, segment)
        if again:
            self._kept[id(turn)] = again
        return turn

    def _named(self, line: Line, uuids: list[Any]) -> list[Turn]:
        found = [self._of.get(id(self.session.named(line, uuid))) for uuid in uuids]
        return list(dict.fromkeys(turn for turn in found if turn is not None and not turn.compaction))

    def _between(self, line: Line, segment: dict[str, Any]) -> list[Turn]:
        head = self._of.get(id(self.session.named(line, segment.get("headUuid"))))
        turn = self._of.get(id(self.session.named(line, segment.get("tailUuid"))))
        found: list[Turn] = []
        while head is not None and turn is not None:
            found.append(turn)
            if turn is head:
                return found[::-1]
            turn = turn.parent
        return []

    def _other(self, line: Line, up: Turn | None) -> None:
        data = line.data
        self.session.skip(line)
        if data.get("type") == "attachment":
            before = self._attached.get(id(line), [])
            if len(before) < _KEPT:
                self._attached[id(line)] = [*before, bounded(data.get("attachment"))]
        if data.get("type") == "system" and data.get("subtype") == "api_error":
            self._error(line, json_text(data.get("error")))
        told = object_of(data.get("data"))
        call = data.get("parentToolUseID")
        if isinstance(told.get("agentId"), str) and isinstance(call, str):
            self.begun.setdefault(told["agentId"], call)

    def _error(self, line: Line, text: str) -> None:
        if len(self.errors) < _KEPT:
            self.errors.append({"at": line.at, "session": bounded(line.session, 100), "text": bounded(text)})


def _agent_call(arguments: str) -> dict[str, Any]:
    """The input of a call, where it may be one for a sub-agent."""
    if '"prompt"' not in arguments:
        return {}
    try:
        return object_of(json.loads(arguments))
    except (ValueError, RecursionError):
        return {}


def first_text(turn: Turn) -> str:
    """The text with which a turn begins."""
    for message in turn.messages:
        if isinstance(message.content, tuple):
            return next((part.text for part in message.content if isinstance(part, TextPart)), "")
        return message.content or ""
    return ""


def lineage(turn: Turn) -> Iterator[Turn]:
    """The turns that it came from, the last first, over compactions."""
    seen: set[int] = set()
    each: Turn | None = turn
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        each = each.parent or each.before
        if each is not None:
            yield each
