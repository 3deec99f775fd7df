"""Puts the pieces of a reply together, as the engine sent them and as the caller may see them."""

from __future__ import annotations

from typing import Any

import msgspec

from agentworld.dialects.exchange import Choice, Delta, Ids, Run, ToolCallDelta
from agentworld.engines.whole_replies import WholeDelta
from agentworld.errors import EngineError
from agentworld.records import FunctionCall, Message, ToolCall, Usage, VersionSpan, new_id


class _GrowingCall:
    """One tool call while it grows. `given`: the id that the engine has for it; `next_id`: one that came alone after
    arguments, and belongs to the call that a name may begin.
    """

    __slots__ = ("arguments", "given", "id", "names", "next_id", "spoke")

    def __init__(self, given: str | None) -> None:
        self.given = given
        self.id = given or new_id("call")
        self.names: list[str] = []
        self.arguments: list[str] = []
        self.spoke = False
        self.next_id: str | None = None

    def ends_at(self, piece: ToolCallDelta) -> bool:
        """Whether the piece, which has this one's index, belongs to another call."""
        if piece.name is None:
            return False  # Some engines send an id of its own with each piece of the arguments.
        if self.next_id is not None:
            return True
        if piece.id is not None and piece.id != self.given and (self.given is not None or self.spoke):
            return True
        return self.spoke and piece.name != "".join(self.names)


class _Growing:
    """One choice while it grows."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.runs: list[Run] = []
        self.running = ""
        self.run_length = 0
        self.spoke = False
        self.calls: list[_GrowingCall] = []
        self.by_index: dict[int, int] = {}
        self.by_id: dict[tuple[int, str], int] = {}
        self.ids: list[int] | None = None
        self.logprobs: list[float | None] | None = None
        self.entries: list[dict[str, Any]] = []
        self.finish_reason: str | None = None
        self.stop_reason: int | str | None = None
        self.silent_version: int | None = None
        """What the engine said of its weights beside pieces without ids."""
        self.spans: list[VersionSpan] = []
        self.reported_spans: tuple[VersionSpan, ...] | None = None
        self.metadata: dict[str, Any] = {}
        self.blocks: list[dict[str, Any]] | None = None

    def feed(self, delta: Delta) -> Delta:
        calls = tuple(self._call(call) for call in delta.tool_calls)
        if calls != delta.tool_calls:
            delta = msgspec.structs.replace(delta, tool_calls=calls)
        if delta.policy_version is not None:
            self._policy(delta, delta.policy_version)
        self.spoke = self.spoke or _says_something(delta)
        before = len(self.logprobs or ())
        if delta.ids is not None:
            self.ids = self.ids if self.ids is not None else []
            self.ids.extend(delta.ids)
        if delta.logprobs is not None:
            self.logprobs = self.logprobs if self.logprobs is not None else []
            self.logprobs.extend(delta.logprobs)
        if delta.entries:
            self.entries.extend(delta.entries)
        # In the order in which streams show them.
        if delta.reasoning:
            self._say("reasoning", self.reasoning, delta.reasoning, before)
        if delta.text:
            self._say("text", self.text, delta.text, before)
        self.finish_reason = delta.finish_reason or self.finish_reason
        if delta.stop_reason is not None:
            self.stop_reason = delta.stop_reason
        self.reported_spans = delta.version_spans or self.reported_spans
        if delta.metadata is not None:
            self.metadata |= delta.metadata
        if delta.blocks is not None:
            self.blocks = delta.blocks
        return delta

    def _policy(self, delta: Delta, version: int) -> None:
        """Note which weights sampled these ids. A piece without ids tells of a reply that has none at all, by what came
        with its first word.
        """
        if delta.ids:
            if not self.spans or self.spans[-1].version != version:
                self.spans.append(VersionSpan(len(self.ids or ()), version))
        elif not self.spoke or self.silent_version is None:
            self.silent_version = version

    def version_spans(self) -> tuple[VersionSpan, ...]:
        """Which weights sampled what. Of a reply that was broken off, only what is said of the ids that came."""
        spans = self.reported_spans or tuple(self.spans)
        if not spans and self.silent_version is not None:
            spans = (VersionSpan(0, self.silent_version),)
        if self.finish_reason is None:
            spans = tuple(span for span in spans if not span.start or span.start < len(self.ids or ()))
        return spans

    def _say(self, kind: str, said: list[str], piece: str, before: int) -> None:
        """Take in text or thinking; `before`: how many log-probabilities came before it."""
        said.append(piece)
        if kind != self.running:
            if self.running:
                self.runs.append(Run(self.running, self.run_length, before))
            self.running, self.run_length = kind, 0
        self.run_length += len(piece)

    def order(self) -> tuple[Run, ...]:
        """The runs of text and thinking; none where they are what the message says anyway: thinking, then text."""
        if not self.runs or (len(self.runs) == 1 and self.running == "text"):
            return ()
        return (*self.runs, Run(self.running, self.run_length, len(self.logprobs or ())))

    def _call(self, piece: ToolCallDelta) -> ToolCallDelta:
        """The piece at its true position: engines repeat an index for another call, and leave ids out."""
        position = self.by_index.get(piece.index)
        if piece.id is not None:
            position = self.by_id.get((piece.index, piece.id), position)
        if position is None or self.calls[position].ends_at(piece):
            waiting = self.calls[position].next_id if position is not None else None
            position = self.by_index[piece.index] = len(self.calls)
            call = _GrowingCall(piece.id or waiting)
            self.calls.append(call)
            shown: str | None = call.id
        else:
            call, shown = self.calls[position], None
            self._name_call(call, piece)
        if call.given is not None:
            self.by_id.setdefault((piece.index, call.given), position)
        name = piece.name
        if name is not None and call.names and (call.spoke or piece.id is not None or name == "".join(call.names)):
            name = None  # Some engines send the name again with each piece of the arguments.
        if name is not None:
            call.names.append(name)
        if piece.arguments:
            call.spoke, call.next_id = True, None
            call.arguments.append(piece.arguments)
        return ToolCallDelta(index=position, id=shown, name=name, arguments=piece.arguments)

    @staticmethod
    def _name_call(call: _GrowingCall, piece: ToolCallDelta) -> None:
        """Take in the id of a piece that goes on with a call."""
        if piece.id is None or piece.id == call.given:
            return
        if call.given is None:
            call.given = piece.id
        elif call.spoke and not piece.arguments:
            call.next_id = piece.id

    def facts(self) -> dict[str, Any]:
        """What goes on record beside the reply."""
        stopped = {"stop_reason": self.stop_reason} if isinstance(self.stop_reason, str) else {}
        return {**self.metadata, **stopped}

    def message(self) -> Message:
        calls = tuple(
            ToolCall(id=call.id, function=FunctionCall("".join(call.names), "".join(call.arguments)))
            for call in self.calls
        )
        text, reasoning = "".join(self.text), "".join(self.reasoning)
        # A reply that is tool calls alone has no content; any other has, be it empty.
        return Message(
            role="assistant",
            content=None if calls and not text else text,
            reasoning=reasoning or None,
            tool_calls=calls,
        )


def _choice(whole: WholeDelta) -> Choice:
    """What becomes of a reply that came in one piece; as `_Growing` makes of it."""
    version, stopped = whole.policy_version, whole.stop_reason
    return Choice(
        index=0,
        message=Message(role="assistant", content=whole.text, reasoning=whole.reasoning or None),
        finish_reason=whole.finish_reason or "",
        ids=whole.sequence[whole.prompt_length :],
        logprobs=whole.numbers,
        entries=[],
        version_spans=() if version is None else (VersionSpan(0, version),),
        metadata={"stop_reason": stopped} if isinstance(stopped, str) else {},
    )


def _says_something(delta: Delta) -> bool:
    return bool(delta.ids or delta.text or delta.reasoning or delta.tool_calls)


class Collector:
    """Collects the deltas of one call."""

    def __init__(self) -> None:
        self._choices: dict[int, _Growing] = {}
        self.whole: WholeDelta | None = None
        """The one choice, where it came in one piece and nothing came beside it."""
        self.prompt_ids: Ids | None = None
        self.usage: Usage | None = None
        self.logprobs_mode: str | None = None
        self.policy_run: str | None = None
        self.faults: list[str] = []
        self.empty = True
        """Whether nothing was sampled yet, as far as is known."""

    def feed(self, delta: Delta) -> Delta | None:
        """Take a piece; returns it as the caller may see it, or None where it says nothing about a choice."""
        first = self.prompt_ids is None
        whole = delta if delta.__class__ is WholeDelta and first and not self._choices else None
        if first:
            self.prompt_ids = delta.prompt_ids if whole is None else whole.sequence[: whole.prompt_length]
        self.usage = delta.usage or self.usage
        if delta.policy_run is not None and self.policy_run not in (None, delta.policy_run):
            self._fault("the engine spoke with the weights of two runs")
        self.logprobs_mode = delta.logprobs_mode or self.logprobs_mode
        self.policy_run = delta.policy_run or self.policy_run
        if delta.fault is not None:
            self._fault(delta.fault)
        if delta.index < 0:
            return None
        if whole is not None:
            self.whole, self.empty = whole, False
            return delta
        self._begin()
        return self._grow(delta)

    def _begin(self) -> None:
        """Take the reply that came in one piece as the first of several."""
        if self.whole is not None:
            whole, self.whole = self.whole, None
            self._grow(whole)

    def _grow(self, delta: Delta) -> Delta:
        growing = self._choices.get(delta.index)
        if growing is None:
            growing = self._choices[delta.index] = _Growing(delta.index)
        # Services that give text alone may name a finish reason with every piece.
        has_ids = delta.ids or (growing.ids and _says_something(delta))
        if growing.finish_reason is not None and has_ids:
            self._fault("the engine went on after the end of its reply")
        seen = growing.feed(delta)
        if growing.spoke:
            self.empty = False
        return seen

    def _fault(self, fault: str) -> None:
        if fault not in self.faults:
            self.faults.append(fault)

    @property
    def count(self) -> int:
        """How many choices have begun."""
        return 1 if self.whole is not None else len(self._choices)

    def choices(self, expected: int = 1, *, aborted: bool = False) -> list[Choice]:
        """The whole replies, with indexes from 0 on. EngineError where one was not asked for or has no end, unless
        `aborted`: then it ends as `abort`, and one that had not begun is left out.
        """
        if self.whole is not None and expected == 1:
            return [_choice(self.whole)]
        self._begin()
        if not aborted and len(self._choices) < expected:
            raise EngineError(f"the engine sent {len(self._choices)} of {expected} replies and ended the stream")
        if not aborted and max(self._choices, default=0) >= expected:
            raise EngineError(f"the engine sent reply {max(self._choices)}, counted from 0, of {expected} asked for")
        out = []
        for growing in sorted(self._choices.values(), key=lambda choice: choice.index):
            if growing.finish_reason is None and aborted and not growing.spoke:
                continue
            if growing.finish_reason is None and not aborted:
                raise EngineError("the engine ended the stream in the middle of a reply")
            out.append(
                Choice(
                    index=growing.index,
                    message=growing.message(),
                    finish_reason=growing.finish_reason or "abort",
                    ids=growing.ids,
                    logprobs=growing.logprobs,
                    entries=growing.entries,
                    version_spans=growing.version_spans(),
                    metadata=growing.facts(),
                    blocks=growing.blocks,
                    runs=growing.order(),
                )
            )
        return out
