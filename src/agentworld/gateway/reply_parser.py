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

    A call that is cut or malformed stays in the content as written.
    """

    def __init__(self, renderer: Any, call: Call) -> None:
        self._renderer = renderer
        self._call = call
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
        parsed = self._renderer.parse_response(
            self._ids[:end], tools=self._call.tools or None, prompt_ids=self._call.prompt_ids
        )
        calls, raw = [], []
        for attempt in parsed.tool_calls:
            if str(attempt.status) == "ok" and attempt.name:
                arguments = attempt.arguments
                text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
                calls.append((attempt.name, text))
            else:
                raw.append(attempt.raw)
        if sampling.parallel_tool_calls is False:
            calls = calls[:1]
        passage = Passage(sampling.stop)
        text = passage.add("\n".join([parsed.content, *raw]), final=True)
        return Piece(text, parsed.reasoning_content or "", tuple(calls))


def open_parser(rendering: Any, tokenizer: TokenizerAdapter, call: Call) -> ReplyParser:
    """The parser for one choice of a call; `rendering` is the one that made its prompt."""
    if rendering.name != "qwen3" or not tokenizer.is_byte_level:
        return WholeParser(rendering.renderer, call)
    from renderers.reasoning import prompt_ends_in_reasoning

    sampling = call.sampling
    opened = prompt_ends_in_reasoning(tokenizer, call.prompt_ids, stop_ids=set(rendering.stop_ids))
    return Qwen3Parser(
        tokenizer,
        stop_ids=sampling.stop_token_ids,
        tools=bool(call.tools),
        opened=bool(opened),
        stops=sampling.stop,
        parallel=sampling.parallel_tool_calls is not False,
    )
