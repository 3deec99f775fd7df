"""Picks the parser of a reply's ids: incremental for Qwen3's format, at the end of the reply for other families."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Protocol

from agentworld.capture.call import Call
from agentworld.engines.tokenizer import TokenizerAdapter
from agentworld.gateway.stream_parser import Passage, Piece, Qwen3Parser


class ReplyParser(Protocol):
    """Reads one reply."""

    def feed(self, ids: Sequence[int]) -> Piece:
        """What these ids add."""

    def finish(self) -> Piece:
        """What was held back."""


class WholeParser:
    """Holds the ids back until the reply ends and gives them to the renderer's own parser.

    A call that is cut or malformed stays in the content as written. `lead`: so many of the prompt's last ids begin the
    reply; what they say is left out.
    """

    def __init__(self, renderer: Any, call: Call, lead: int) -> None:
        self._renderer = renderer
        self._call = call
        prompt = call.prompt_ids or []
        self._prompt, self._lead = prompt[: len(prompt) - lead], prompt[len(prompt) - lead :]
        self._ids: list[int] = []

    def feed(self, ids: Sequence[int]) -> Piece:
        """Nothing yet."""
        self._ids.extend(ids)
        return Piece()

    def finish(self) -> Piece:
        """The whole reply."""
        sampling = self._call.sampling
        extra = set(sampling.stop_token_ids)
        end = next((at for at, token in enumerate(self._ids) if token in extra), len(self._ids))
        text, reasoning, calls = self._parse([*self._lead, *self._ids[:end]])
        if self._lead:
            before = self._parse(self._lead)
            text, reasoning = text.removeprefix(before[0]), reasoning.removeprefix(before[1])
        passage = Passage(sampling.stop)
        passage.begun = bool(self._lead)
        return Piece(passage.add(text, final=True), reasoning, tuple(calls))

    def _parse(self, ids: list[int]) -> tuple[str, str, list[tuple[str, str]]]:
        """Content, reasoning and calls."""
        parsed = self._renderer.parse_response(ids, tools=self._call.tools or None, prompt_ids=self._prompt)
        calls, raw = [], []
        for attempt in parsed.tool_calls:
            if str(attempt.status) == "ok" and attempt.name:
                arguments = attempt.arguments
                text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
                calls.append((attempt.name, text))
            else:
                raw.append(attempt.raw)
        if self._call.sampling.parallel_tool_calls is False:
            calls = calls[:1]
        return "\n".join([parsed.content, *raw]), parsed.reasoning_content or "", calls


class GoingOn:
    """The parser of a reply whose beginning stands in the prompt. `text`, `reasoning`: what the beginning showed at its
    end though it was not certain yet, such as a tool call that was cut off; it is not shown again.
    """

    def __init__(self, parser: ReplyParser, text: str, reasoning: str) -> None:
        self._parser = parser
        self._text = text
        self._reasoning = reasoning

    def feed(self, ids: Sequence[int]) -> Piece:
        """What these ids add."""
        return self._new(self._parser.feed(ids))

    def finish(self) -> Piece:
        """What was held back."""
        return self._new(self._parser.finish())

    def _new(self, piece: Piece) -> Piece:
        if piece.text:
            piece, self._text = piece._replace(text=piece.text.removeprefix(self._text)), ""
        if piece.reasoning:
            piece, self._reasoning = piece._replace(reasoning=piece.reasoning.removeprefix(self._reasoning)), ""
        return piece


def open_parser(rendering: Any, tokenizer: TokenizerAdapter, call: Call) -> ReplyParser:
    """The parser for one choice of a call; `rendering` is the one that made its prompt."""
    lead = call.metadata.get("prefilled") or 0
    if rendering.name != "qwen3" or not tokenizer.is_byte_level:
        return WholeParser(rendering.renderer, call, lead)
    from renderers.reasoning import prompt_ends_in_reasoning

    sampling = call.sampling
    prompt = call.prompt_ids or []
    before, begun = prompt[: len(prompt) - lead], prompt[len(prompt) - lead :]
    opened = bool(prompt_ends_in_reasoning(tokenizer, before, stop_ids=set(rendering.stop_ids)))

    def parser() -> Qwen3Parser:
        return Qwen3Parser(
            tokenizer,
            stop_ids=(),
            tools=bool(call.tools),
            opened=opened,
            parallel=sampling.parallel_tool_calls is not False,
        )

    reading = parser()
    certain = reading.feed(begun)
    reading.stop_at(sampling.stop_token_ids, sampling.stop)
    if not begun:
        return reading
    other = parser()
    whole = other.feed(begun) + other.finish()
    return GoingOn(reading, whole.text[len(certain.text) :], whole.reasoning[len(certain.reasoning) :])
