"""Control tokens that stand in what a request says are written as plain text, never as control tokens.

A tool result may hold a literal `<|im_end|>`; tokenized as every tokenizer does it, it would end the turn. Policy: in
text that the caller sends, each added token of the vocabulary is cut after its first character, and the two halves are
tokenized apart. The ids decode to the same text and hold no control id. In an assistant message's own content `<think>`
and `</think>` are left alone, since templates read thinking from there. With `control_tokens = "refuse"` on the model
a call whose system, user or tool messages or tools hold such text is refused instead; in assistant messages, which say
what the model wrote (a call that was cut off stays in its content), it is cut all the same.

The cut travels through the renderer as a mark in the text: U+FDD0, which Unicode reserves for use inside programs,
followed by `1`; where the text itself holds U+FDD0, it travels as U+FDD0 `0`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentworld.engines.tokenizer import TokenizerAdapter
from agentworld.errors import InvalidRequestError
from agentworld.gateway.encodings import Encodings

MARK = "\ufdd0"
_CUT, _LITERAL = MARK + "1", MARK + "0"
_THINKING = ("<think>", "</think>")


class EscapingTokenizer:
    """The tokenizer as renderers see it: honours cut marks, and offers no offsets, as marks would shift them. Texts
    that were encoded lately are not encoded again.
    """

    def __init__(self, adapter: TokenizerAdapter) -> None:
        self._adapter = adapter
        self._encode = Encodings(adapter.encode)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._adapter, name)

    def encode(self, text: str, add_special_tokens: bool = False, **_: Any) -> list[int]:
        """Ids of a text with marks; the pieces between two cuts are tokenized apart."""
        if MARK not in text:
            return self._encode(text)
        ids: list[int] = []
        for piece in text.split(_CUT):
            if piece:
                ids.extend(self._encode(piece.replace(_LITERAL, MARK)))
        return ids

    def apply_chat_template(
        self, messages: Any, *, tokenize: bool = True, return_dict: bool = False, **more: Any
    ) -> Any:
        """The model's own template, tokenized with marks."""
        text = self._adapter.apply_chat_template(messages, tokenize=False, **more)
        if not tokenize:
            return text
        ids = self.encode(text)
        return {"input_ids": ids} if return_dict else ids


class Escaper:
    """Marks the control tokens of one vocabulary in text. `count`: how many it has marked since it was made; `place`:
    where the text stands that comes next. `refuse`: raise InvalidRequestError for what callers write.
    """

    def __init__(self, control_tokens: Sequence[str], *, refuse: bool = False) -> None:
        self.count = 0
        self.place = "the text"
        self._refuse = refuse
        self._everything = _pattern(control_tokens)
        self._not_thinking = _pattern([token for token in control_tokens if token not in _THINKING])

    def text(self, text: str, *, own: bool = False, thinking: bool = False) -> str:
        """The text with marks. `own`: the model's own words, which are never refused; `thinking`: leave `<think>` and
        `</think>` as they are.
        """
        if MARK in text:
            text = text.replace(MARK, _LITERAL)
        pattern = self._not_thinking if thinking else self._everything
        if pattern is None:
            return text
        if self._refuse and not own and (found := pattern.search(text)) is not None:
            raise InvalidRequestError(
                f"{self.place} holds the control token {found.group()!r}, which this model refuses in text",
                path="messages",
                hint='Take it out, or set control_tokens = "escape" on the model to send it as plain text',
            )
        return pattern.sub(self._cut, text)

    def _cut(self, found: re.Match[str]) -> str:
        self.count += 1
        token = found.group()
        return token[0] + _CUT + token[1:]

    def json(self, value: Any) -> Any:
        """A JSON value with every string in it marked."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.json(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.json(item) for item in value]
        return value


def _pattern(tokens: Sequence[str]) -> re.Pattern[str] | None:
    """Any of the tokens, the longest first; single characters cannot be cut and are left out."""
    long = sorted((token for token in tokens if len(token) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, long))) if long else None
