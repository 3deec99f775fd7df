"""Puts the pieces of a reply together, as the engine sent them and as the caller may see them."""

from __future__ import annotations

from typing import Any

import msgspec

from agentworld.dialects.exchange import Choice, Delta, ToolCallDelta
from agentworld.errors import EngineError
from agentworld.records import FunctionCall, Message, ToolCall, Usage, VersionSpan, new_id


class _Growing:
    """One choice while it grows."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.calls: list[tuple[str, list[str], list[str]]] = []
        self.by_index: dict[int, int] = {}
        self.ids: list[int] | None = None
        self.logprobs: list[float | None] | None = None
        self.entries: list[dict[str, Any]] = []
        self.finish_reason: str | None = None
        self.stop_reason: int | str | None = None
        self.version: int | None = None
        self.spans: list[VersionSpan] = []
        self.reported_spans: tuple[VersionSpan, ...] | None = None
        self.metadata: dict[str, Any] = {}
        self.blocks: list[dict[str, Any]] | None = None

    def feed(self, delta: Delta) -> Delta:
        calls = tuple(self._call(call) for call in delta.tool_calls)
        if calls != delta.tool_calls:
            delta = msgspec.structs.replace(delta, tool_calls=calls)
        self.text.append(delta.text)
        self.reasoning.append(delta.reasoning)
        if delta.policy_version is not None and delta.policy_version != self.version:
            self.version = delta.policy_version
            self.spans.append(VersionSpan(len(self.ids or []), delta.policy_version))
        if delta.ids is not None:
            self.ids = self.ids if self.ids is not None else []
            self.ids.extend(delta.ids)
        if delta.logprobs is not None:
            self.logprobs = self.logprobs if self.logprobs is not None else []
            self.logprobs.extend(delta.logprobs)
        if delta.entries:
            self.entries.extend(delta.entries)
        self.finish_reason = delta.finish_reason or self.finish_reason
        if delta.stop_reason is not None:
            self.stop_reason = delta.stop_reason
        self.reported_spans = delta.version_spans or self.reported_spans
        if delta.metadata is not None:
            self.metadata |= delta.metadata
        if delta.blocks is not None:
            self.blocks = delta.blocks
        return delta

    def _call(self, piece: ToolCallDelta) -> ToolCallDelta:
        """The piece at its true position: engines repeat an index for another id, and leave ids out."""
        position = self.by_index.get(piece.index)
        known = self.calls[position] if position is not None else None
        begins = known is None or (piece.id is not None and piece.name is not None and piece.id != known[0])
        if begins:
            call_id = piece.id or new_id("call")
            self.calls.append((call_id, [], []))
            position = self.by_index[piece.index] = len(self.calls) - 1
            piece = msgspec.structs.replace(piece, id=call_id)
        assert position is not None
        own_id, names, arguments = self.calls[position]
        if piece.name is not None and names and piece.id == own_id:
            # Some engines send id and name again with each piece of the arguments.
            piece = msgspec.structs.replace(piece, name=None)
        if piece.name is not None:
            names.append(piece.name)
        arguments.append(piece.arguments)
        return msgspec.structs.replace(piece, index=position)

    def facts(self) -> dict[str, Any]:
        """What goes on record beside the reply."""
        stopped = {"stop_reason": self.stop_reason} if isinstance(self.stop_reason, str) else {}
        return {**self.metadata, **stopped}

    def message(self) -> Message:
        calls = tuple(
            ToolCall(id=call_id, function=FunctionCall("".join(names), "".join(arguments)))
            for call_id, names, arguments in self.calls
        )
        text, reasoning = "".join(self.text), "".join(self.reasoning)
        # A reply that is tool calls alone has no content; any other has, be it empty.
        return Message(
            role="assistant",
            content=None if calls and not text else text,
            reasoning=reasoning or None,
            tool_calls=calls,
        )


class Collector:
    """Collects the deltas of one call."""

    def __init__(self) -> None:
        self._choices: dict[int, _Growing] = {}
        self.prompt_ids: list[int] | None = None
        self.usage: Usage | None = None
        self.logprobs_mode: str | None = None
        self.policy_run: str | None = None
        self.faults: list[str] = []

    def feed(self, delta: Delta) -> Delta | None:
        """Take a piece; returns it as the caller may see it, or None where it says nothing about a choice."""
        if delta.prompt_ids is not None and self.prompt_ids is None:
            self.prompt_ids = delta.prompt_ids
        self.usage = delta.usage or self.usage
        self.logprobs_mode = delta.logprobs_mode or self.logprobs_mode
        self.policy_run = delta.policy_run or self.policy_run
        if delta.fault is not None and delta.fault not in self.faults:
            self.faults.append(delta.fault)
        if delta.index < 0:
            return None
        growing = self._choices.get(delta.index)
        if growing is None:
            growing = self._choices[delta.index] = _Growing(delta.index)
        return growing.feed(delta)

    @property
    def count(self) -> int:
        """How many choices have begun."""
        return len(self._choices)

    @property
    def empty(self) -> bool:
        """Whether nothing was sampled yet, as far as is known."""
        return not any(
            growing.ids or any(growing.text) or any(growing.reasoning) or growing.calls
            for growing in self._choices.values()
        )

    def choices(self, expected: int = 1, *, aborted: bool = False) -> list[Choice]:
        """The whole replies, with indexes from 0 on. EngineError where one was not asked for or has no end, unless
        `aborted`: then it ends as `abort`.
        """
        if not aborted and len(self._choices) < expected:
            raise EngineError(f"the engine sent {len(self._choices)} of {expected} replies and ended the stream")
        if not aborted and max(self._choices, default=0) >= expected:
            raise EngineError(f"the engine sent reply {max(self._choices)}, counted from 0, of {expected} asked for")
        out = []
        for growing in sorted(self._choices.values(), key=lambda choice: choice.index):
            if growing.finish_reason is None and not aborted:
                raise EngineError("the engine ended the stream in the middle of a reply")
            spans = growing.reported_spans or tuple(growing.spans)
            out.append(
                Choice(
                    index=growing.index,
                    message=growing.message(),
                    finish_reason=growing.finish_reason or "abort",
                    ids=growing.ids,
                    logprobs=growing.logprobs,
                    entries=growing.entries,
                    version_spans=spans,
                    metadata=growing.facts(),
                    blocks=growing.blocks,
                )
            )
        return out
