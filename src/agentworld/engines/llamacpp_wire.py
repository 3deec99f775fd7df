"""Replies of llama.cpp's server -> deltas.

`/completion` lists all sampled ids in `tokens`, but has no log-probability for tokens that end inside a character;
those become null. Fields of older releases are read too: `probs` lists without ids, and flags in place of `stop_type`.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from typing import Any

from agentworld.dialects.exchange import Delta
from agentworld.engines import reply_fields as fields
from agentworld.engines.openai_wire import NO_KEY, decode, decode_any, finite, raise_error, read_body, unreal
from agentworld.engines.redact import Redactor
from agentworld.errors import EngineError
from agentworld.records import Usage

THINK, THINK_END = "<think>", "</think>"


class Entry:
    """What the server tells of one sampled token: its id (None in older releases), log-probability and alternatives."""

    def __init__(self, item: dict[str, Any]) -> None:
        self.id = fields.whole(item, "id", fields.MAX_ID)
        self.text = fields.text(item, "token") or fields.text(item, "content")
        tops = next((name for name in ("top_logprobs", "top_probs", "probs") if item.get(name) is not None), "probs")
        self.tops = {
            fields.text(top, "token") or fields.text(top, "tok_str"): number
            for top in fields.objects(item, tops) or []
            if (number := _number(top)) is not None
        }
        own = _number(item)
        self.processed = "logprob" not in item
        """Whether the numbers are of what was sampled from, after all samplers."""
        self.logprob = self.tops.get(self.text) if own is None and "logprob" not in item else own

    def shown(self, tops: int) -> dict[str, Any]:
        """As an OpenAI log-probability object with so many alternatives."""
        ranked = sorted(self.tops.items(), key=lambda top: -top[1])[:tops]
        return {
            "token": self.text,
            "logprob": -9999.0 if self.logprob is None else self.logprob,
            "bytes": list(self.text.encode()),
            "top_logprobs": [
                {"token": text, "logprob": number, "bytes": list(text.encode())} for text, number in ranked
            ],
        }


def _number(item: dict[str, Any]) -> float | None:
    """A log-probability, from the probability where only that is there."""
    if item.get("logprob") is None and item.get("prob") is not None:
        value = finite(item["prob"])
        return math.log(value) if value is not None and 0 < value <= 1 else None
    value = item.get("logprob")
    fields.numbers([value], "logprob")
    return finite(value)


def aligned(ids: list[int], entries: list[Entry]) -> list[Entry | None]:
    """For each id its entry, or None where there is none, or where it could belong to another id as well.

    Entries are in order but may be missing. An entry has its place where the earliest and the latest way to spread all
    of them over the ids agree.
    """
    if len(entries) == len(ids) and all(entry.id in (None, token) for entry, token in zip(entries, ids, strict=True)):
        return list(entries)
    early = _spread([entry.id for entry in entries], ids)
    late = _spread([entry.id for entry in reversed(entries)], ids[::-1])
    out: list[Entry | None] = [None] * len(ids)
    if early is None or late is None:
        return out
    for entry, first, last in zip(entries, early, reversed(late), strict=True):
        if first == len(ids) - 1 - last:
            out[first] = entry
    return out


def _spread(wanted: list[int | None], ids: list[int]) -> list[int] | None:
    """The first places of `wanted` among the ids, in order; None where they are not all there."""
    places = []
    place = -1
    for token in wanted:
        try:
            place = ids.index(-1 if token is None else token, place + 1)  # No id is negative.
        except ValueError:
            return None
        places.append(place)
    return places


class CompletionReader:
    """Reads one plain call of `/completion`. `objects`: entries as OpenAI objects, else alternatives by position."""

    def __init__(
        self, prompt_ids: list[int], *, entries: bool, tops: int, objects: bool, redactor: Redactor = NO_KEY
    ) -> None:
        self._prompt_ids = prompt_ids
        self._entries = entries
        self._tops = tops
        self._objects = objects
        self._redactor = redactor

    def read(self, data: bytes) -> list[Delta]:
        """The deltas of a body, which is a list where there are several choices."""
        value = decode_any(data, self._redactor)
        items = value if isinstance(value, list) else [value]
        deltas = [self._item(item, position) for position, item in enumerate(items)]
        counts = [delta.usage for delta in deltas]
        if all(count is not None for count in counts) and counts:
            total = fields.summed(count.completion_tokens for count in counts if count is not None)
            deltas[0].usage = Usage(counts[0].prompt_tokens if counts[0] is not None else 0, total)
            for delta in deltas[1:]:
                delta.usage = None
        return deltas

    def _item(self, item: Any, position: int) -> Delta:
        if not isinstance(item, dict):
            raise EngineError("the engine sent JSON that is not an object")
        raise_error(item, self._redactor)
        prompt, reply = (
            fields.whole(item, name, fields.MAX_COUNT) for name in ("tokens_evaluated", "tokens_predicted")
        )
        index = fields.whole(item, "index", fields.MAX_COUNT)
        delta = Delta(
            index=position if index is None else index,
            text=fields.text(item, "content"),
            ids=fields.ids(item, "tokens") or None,
            prompt_ids=self._prompt_ids,
            usage=None if prompt is None or reply is None else Usage(prompt, reply),
        )
        if prompt is not None and prompt != len(self._prompt_ids):
            delta.fault = f"the engine took {prompt} tokens of a prompt of {len(self._prompt_ids)}"
        self._numbers(delta, item)
        delta.finish_reason, delta.stop_reason = _ending(item)
        return delta

    def _numbers(self, delta: Delta, item: dict[str, Any]) -> None:
        name = "completion_probabilities" if item.get("completion_probabilities") is not None else "probs"
        given = fields.objects(item, name)
        if given is None or delta.ids is None:
            return
        entries = [Entry(each) for each in given]
        found = aligned(delta.ids, entries)
        delta.logprobs = [entry.logprob if entry is not None else None for entry in found]
        delta.fault = delta.fault or unreal(each.get("logprob") for each in given)
        delta.logprobs_mode = "processed_logprobs" if any(entry.processed for entry in entries) else "raw_logprobs"
        if self._entries and self._objects:
            delta.entries = [entry.shown(self._tops) for entry in entries]
        elif self._entries:
            delta.entries = [
                {"token": entry.text, "logprob": entry.logprob, "tops": entry.tops if self._tops else {}}
                if entry is not None
                else {"token": "", "logprob": None, "tops": {}}
                for entry in found
            ]


def _ending(item: dict[str, Any]) -> tuple[str | None, str | None]:
    """The finish reason, and the stop string that ended the reply."""
    kind = fields.text(item, "stop_type")
    if not kind:
        flags = {"stopped_word": "word", "stopped_eos": "eos", "stopped_limit": "limit"}
        kind = next((known for name, known in flags.items() if item.get(name) is True), "")
    if kind == "word":
        return "stop", fields.text(item, "stopping_word") or None
    return {"eos": "stop", "limit": "length"}.get(kind), None


def read_chat(
    data: bytes, prompt_ids: list[int] | None, *, entries: bool, tops: int, redactor: Redactor = NO_KEY
) -> list[Delta]:
    """The deltas of a chat body or chunk. `prompt_ids`: of the prompt, where ids are wanted.

    The ids of a reply are taken only where the server has told as many as it sampled.
    """
    body = decode(data, redactor)
    deltas = read_body(body, kind="chat", entries=False, redactor=redactor)
    found = [_entries(choice) for choice in fields.objects(body, "choices") or []]
    usage = fields.usage(body)
    whole = prompt_ids is not None and usage is not None and _complete(found, usage)
    for delta, own in zip(deltas, found, strict=False):
        if own is None:
            continue
        if entries:
            delta.entries = [entry.shown(tops) for entry in own]
        if whole:
            delta.ids = [entry.id or 0 for entry in own]
            delta.prompt_ids = prompt_ids
        elif prompt_ids is not None:
            delta.logprobs = None
            delta.metadata = {"ids_missing": "the engine told the ids of some sampled tokens only"}
    if prompt_ids is not None and usage is not None and usage.prompt_tokens != len(prompt_ids):
        deltas[0].fault = (
            deltas[0].fault or f"the engine took {usage.prompt_tokens} tokens of a prompt of {len(prompt_ids)}"
        )
    return deltas


def _entries(choice: dict[str, Any]) -> list[Entry] | None:
    items = fields.objects(fields.mapping(choice, "logprobs"), "content")
    return None if items is None else [Entry(item) for item in items]


def _complete(found: list[list[Entry] | None], usage: Usage) -> bool:
    """Whether all sampled tokens are there with their ids."""
    told = [entry for own in found for entry in own or []]
    return len(told) == usage.completion_tokens and all(entry.id is not None for entry in told)


async def split_thinking(deltas: AsyncIterator[Delta], prompt: str) -> AsyncIterator[Delta]:
    """Whole replies with their thinking apart from their text; `prompt` may have opened the thought."""
    opened = prompt.rstrip().endswith(THINK)
    async for delta in deltas:
        if opened or delta.text.lstrip().startswith(THINK):
            thought, closed, rest = delta.text.partition(THINK_END)
            delta.reasoning = thought.lstrip().removeprefix(THINK).strip("\n")
            delta.text = rest.lstrip("\n") if closed else ""
        yield delta
