"""Reads sampled ids as content, reasoning and tool calls while they arrive, in Qwen3's format.

The result is the same however the ids are cut, and equals `renderers`' parser of whole replies, apart from what that
one cannot say: a tool call with broken JSON is passed on with its raw arguments where its name can be read; a call that
is cut off or has no name stays in the content as written; stop strings are taken out. Delimiters are recognised by id,
never by text that looks alike. Without tools on offer, tool-call markup is content.

A tool call goes out whole. `<tool_call>` inside thinking is held back, since a later `</think>` makes it thought.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import NamedTuple

from agentworld.engines.tokenizer import TokenizerAdapter

_NAMED = re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*', re.DOTALL)


class Piece(NamedTuple):
    """What some ids add: text, reasoning, and complete calls as (name, raw arguments)."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, str], ...] = ()

    def __add__(self, other: object) -> Piece:
        assert isinstance(other, Piece)
        return Piece(self.text + other.text, self.reasoning + other.reasoning, self.calls + other.calls)


class Passage:
    """A run of text from bytes: whole characters, cut at the first stop string, without white space around it."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._space = ""
        self.begun = False
        self.stopped = False
        self.spoken = False
        """Whether anything but white space has come in, shown or not."""

    def feed(self, data: bytes, *, final: bool = False) -> str:
        """Text that is certain now."""
        return self.add(self._utf8.decode(data, final), final=final)

    def stop_at(self, stops: Sequence[str]) -> None:
        """Look for these from here on."""
        self._stops = stops

    @property
    def partial(self) -> bool:
        """Whether an unfinished character is held back."""
        return bool(self._utf8.getstate()[0])

    def add(self, text: str, *, final: bool = False) -> str:
        """The same for text."""
        if self.stopped:
            return ""
        self.spoken = self.spoken or bool(text.strip())
        self._held += text
        # The stop string that ends first wins, as it would have ended the reply.
        ends = [(at + len(stop), at) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if ends:
            self.stopped = True
            text, self._held = self._held[: min(ends)[1]], ""
        else:
            keep = 0 if final else max((_overlap(self._held, stop) for stop in self._stops), default=0)
            cut = len(self._held) - keep
            text, self._held = self._held[:cut], self._held[cut:]
        if not self.begun:
            text = text.lstrip()
        if not text:
            return ""
        self.begun = True
        whole = self._space + text
        shown = whole.rstrip()
        self._space = whole[len(shown) :]
        return shown


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of the text could be the beginning of the stop string."""
    return next((size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])), 0)


class _State(Enum):
    START = auto()
    THINKING = auto()
    UNDECIDED = auto()
    CONTENT = auto()
    CALL = auto()
    BETWEEN = auto()
    ENDED = auto()


class Qwen3Parser:
    """One reply. `opened`: the prompt ends inside thinking. `stop_ids`: ids that end the reply and say nothing."""

    def __init__(
        self,
        tokenizer: TokenizerAdapter,
        *,
        stop_ids: Iterable[int],
        tools: bool = True,
        opened: bool = False,
        stops: Sequence[str] = (),
        parallel: bool = True,
    ) -> None:
        ids = tokenizer.convert_tokens_to_ids
        self._tokenizer = tokenizer
        self._stop_ids = frozenset(stop_ids)
        self._think, self._think_end = ids("<think>"), ids("</think>")
        self._call: int | None = ids("<tool_call>") if tools else None
        self._call_end: int | None = ids("</tool_call>") if tools else None
        self._parallel = parallel
        self._stops = tuple(stops)
        self._state = _State.THINKING if opened else _State.START
        self._reasoning = Passage(self._stops)
        self._content = Passage(self._stops)
        self._waiting: list[int] = []
        self._found = 0

    def stop_at(self, stop_ids: Iterable[int], stops: Sequence[str]) -> None:
        """What ends the reply from here on: what was fed so far was written before it."""
        self._stop_ids, self._stops = frozenset(stop_ids), tuple(stops)
        self._reasoning.stop_at(self._stops)
        self._content.stop_at(self._stops)

    def feed(self, ids: Iterable[int]) -> Piece:
        """What these ids add."""
        piece = Piece()
        given, at = list(ids), 0
        while at < len(given) and self._state is not _State.ENDED:
            run = self._plain_run(given, at)
            if run > at:
                piece += self._say(given[at:run])
                at = run
                continue
            token, at = given[at], at + 1
            piece += self._end() if token in self._stop_ids else self._take(token)
        return piece

    def _plain_run(self, ids: list[int], at: int) -> int:
        """Where the ids from `at` on end that are text and nothing else, whichever way they are cut."""
        if self._state is not _State.CONTENT and self._state is not _State.THINKING:
            return at
        marks = (self._think, self._think_end, self._call)
        while at < len(ids) and ids[at] not in self._stop_ids and ids[at] not in marks:
            at += 1
        return at

    def _say(self, ids: list[int]) -> Piece:
        """What a run of text adds to the present passage."""
        if self._state is _State.CONTENT:
            return self._stopped(Piece(text=self._content.feed(self._bytes(ids))), self._content)
        return self._stopped(Piece(reasoning=self._reasoning.feed(self._bytes(ids))), self._reasoning)

    def finish(self) -> Piece:
        """What was held back, at the end of the reply."""
        return Piece() if self._state is _State.ENDED else self._end()

    def _bytes(self, ids: Iterable[int]) -> bytes:
        return b"".join(self._tokenizer.token_bytes(token) for token in ids)

    def _take(self, token: int) -> Piece:
        match self._state:
            case _State.START:
                return self._begin(token)
            case _State.THINKING:
                return self._think_on(token)
            case _State.UNDECIDED:
                self._waiting.append(token)
                if token != self._think_end:
                    return Piece()
                thought, self._waiting = self._waiting[:-1], []
                text = self._reasoning.feed(self._bytes(t for t in thought if t != self._think))
                return Piece(reasoning=text) + self._think_on(token)
            case _State.CONTENT:
                return self._write(token)
            case _State.CALL:
                if token == self._call_end:
                    return self._close_call()
                self._waiting.append(token)
            case _:
                if token == self._call:
                    self._state, self._waiting = _State.CALL, []
        return Piece()

    def _begin(self, token: int) -> Piece:
        """Before the first word: white space may come before `<think>`, anything else makes it content."""
        if token == self._think and not self._content.spoken and not self._content.partial:
            self._state = _State.THINKING
            self._content = Passage(self._stops)
            return Piece()
        if token in (self._think, self._call):
            self._state = _State.CONTENT
            return self._write(token)
        text = self._content.feed(self._tokenizer.token_bytes(token))
        if self._content.spoken:
            self._state = _State.CONTENT
        return self._stopped(Piece(text=text), self._content)

    def _think_on(self, token: int) -> Piece:
        if token == self._think_end:
            self._state = _State.CONTENT
            return self._stopped(Piece(reasoning=self._reasoning.feed(b"", final=True)), self._reasoning)
        if token == self._think:
            return Piece()
        if token == self._call:
            self._state, self._waiting = _State.UNDECIDED, [token]
            return Piece()
        return self._stopped(Piece(reasoning=self._reasoning.feed(self._tokenizer.token_bytes(token))), self._reasoning)

    def _write(self, token: int) -> Piece:
        if token == self._call:
            text = self._content.feed(b"", final=True)
            self._state, self._waiting = _State.CALL, []
            return self._stopped(Piece(text=text), self._content)
        return self._stopped(Piece(text=self._content.feed(self._tokenizer.token_bytes(token))), self._content)

    def _stopped(self, piece: Piece, passage: Passage) -> Piece:
        if passage.stopped:
            self._state = _State.ENDED
        return piece

    def _close_call(self) -> Piece:
        body = self._bytes(self._waiting).decode("utf-8", "replace")
        self._state, self._waiting = _State.BETWEEN, []
        call = read_call(body)
        if call is None:
            return self._raw(f"<tool_call>{body}</tool_call>")
        self._found += 1
        if self._found > 1 and not self._parallel:
            return Piece()
        return Piece(calls=(call,))

    def _raw(self, text: str) -> Piece:
        """A call that is none, as content on a line of its own."""
        opening = "\n" if self._content.begun else ""
        passage = Passage(self._stops)
        shown = passage.add(text, final=True)
        self._content.begun = True
        return Piece(text=opening + shown if shown else "")

    def _end(self) -> Piece:
        state, self._state = self._state, _State.ENDED
        if state is _State.THINKING:
            return Piece(reasoning=self._reasoning.feed(b"", final=True))
        if state in (_State.START, _State.CONTENT):
            return Piece(text=self._content.feed(b"", final=True))
        if state is _State.CALL:
            return self._raw("<tool_call>" + self._bytes(self._waiting).decode("utf-8", "replace"))
        if state is _State.UNDECIDED:
            # No `</think>` came, so the call ended the thinking.
            piece = Piece(reasoning=self._reasoning.feed(b"", final=True))
            held, self._waiting = self._waiting, []
            self._state = _State.BETWEEN
            for token in held:
                piece += self._take(token)
            return piece + self._end()
        return Piece()


def read_call(body: str) -> tuple[str, str] | None:
    """Name and raw arguments of a call's JSON, or None where it names nothing."""
    text = body.strip()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return _broken_call(text)
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(name, str) or not name:
        return None
    arguments = value.get("arguments", {})
    return name, arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _broken_call(text: str) -> tuple[str, str] | None:
    """A call whose JSON is broken: the name where it can be read, the arguments as they are."""
    found = _NAMED.match(text)
    if found is None:
        return None
    try:
        name = json.loads(found[1])
    except ValueError:
        return None
    rest = text[found.end() :]
    try:
        json.loads(rest)
    except (ValueError, RecursionError):
        rest = rest.removesuffix("}").rstrip()
    return (name, rest) if name else None
