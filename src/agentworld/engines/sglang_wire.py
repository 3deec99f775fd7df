"""Replies of SGLang -> deltas.

The ids are those of `meta_info.output_token_logprobs`, a list of [log-probability, id, text], where each number stands
beside its id. Streams of `/generate` repeat everything from the reply's start with each event, unless the server runs
with `--incremental-streaming-output`; the count of tokens so far tells which.
"""

from __future__ import annotations

from typing import Any

from agentworld.dialects.exchange import Delta
from agentworld.engines import reply_fields as fields
from agentworld.engines.openai_wire import NO_KEY, decode, decode_any, finite, raise_error, read_body
from agentworld.engines.redact import Redactor
from agentworld.errors import EngineError
from agentworld.records import Usage

Triples = list[tuple[float | None, int]]


def read_chat(data: bytes, *, entries: bool, redactor: Redactor = NO_KEY) -> list[Delta]:
    """The deltas of a chat body or chunk; a chunk has no ids."""
    body = decode(data, redactor)
    deltas = read_body(body, kind="chat", entries=entries, redactor=redactor)
    version = _version(fields.mapping(body, "metadata"))
    for choice, delta in zip(fields.objects(body, "choices") or [], deltas, strict=False):
        delta.stop_reason = _matched(choice, "matched_stop")
        delta.policy_version = version
        meta = fields.mapping(choice, "meta_info")
        found = _triples(meta)
        told = fields.ids(choice, "response_token_ids")
        if found is not None:
            delta.ids = [token for _, token in found]
            delta.logprobs = [value for value, _ in found]
            delta.fault = contradiction(delta.ids, told)
        elif told is not None:
            delta.ids = told
    return deltas


class GenerateReader:
    """Reads one call of `/generate`."""

    def __init__(self, *, entries: bool, redactor: Redactor = NO_KEY) -> None:
        self._entries = entries
        self._redactor = redactor
        self._ids: dict[int, list[int]] = {}
        self._text: dict[int, int] = {}
        self._counts: dict[int, Usage] = {}

    def read(self, data: bytes) -> list[Delta]:
        """The deltas of a body, which is a list where there are several choices, or of an event."""
        value = decode_any(data, self._redactor)
        items = value if isinstance(value, list) else [value]
        return [self._item(item, position) for position, item in enumerate(items)]

    def _item(self, item: Any, position: int) -> Delta:
        if not isinstance(item, dict):
            raise EngineError("the engine sent JSON that is not an object")
        raise_error(item, self._redactor)
        meta = fields.mapping(item, "meta_info")
        given = fields.whole(item, "index", fields.MAX_COUNT)
        index = position if given is None else given
        delta = Delta(index=index, prompt_ids=fields.ids(item, "prompt_token_ids"), policy_version=_version(meta))
        repeats = self._tokens(delta, item, meta)
        text, known = fields.text(item, "text"), self._text.get(index, 0)
        delta.text = text[known:] if repeats else text
        self._text[index] = known + len(delta.text)
        ended = meta.get("finish_reason")
        if ended is not None:
            self._end(delta, ended, meta)
        return delta

    def _tokens(self, delta: Delta, item: dict[str, Any], meta: dict[str, Any]) -> bool:
        """Put what is new since the last event on the delta; whether the event repeats what came before."""
        found = _triples(meta)
        told = fields.ids(item, "output_ids")
        ids = [token for _, token in found] if found is not None else told
        if ids is None:
            return True
        known = self._ids.setdefault(delta.index, [])
        repeats = _repeats(ids, known, fields.whole(meta, "completion_tokens", fields.MAX_COUNT))
        begin = len(known) if repeats else 0
        if begin > len(ids):
            delta.fault = "the engine took sampled ids back"
        delta.ids = ids[begin:]
        known += delta.ids
        if found is None:
            return repeats
        delta.logprobs = [value for value, _ in found[begin:]]
        if told is not None and meta.get("finish_reason") is not None:
            delta.fault = delta.fault or contradiction(ids, told)
        if self._entries:
            tops = meta.get("output_top_logprobs") or []
            if not isinstance(tops, list):
                fields.refuse("output_top_logprobs", "a list")
            delta.entries = [{"tops": _tops(top)} for top in tops[begin : len(ids)]]
        return repeats

    def _end(self, delta: Delta, ended: Any, meta: dict[str, Any]) -> None:
        if isinstance(ended, dict):
            delta.finish_reason = fields.text(ended, "type") or None
            delta.stop_reason = _matched(ended, "matched")
        else:
            delta.finish_reason = fields.text(meta, "finish_reason")
        prompt, reply = (fields.whole(meta, name, fields.MAX_COUNT) for name in ("prompt_tokens", "completion_tokens"))
        if prompt is None or reply is None:
            return
        self._counts[delta.index] = Usage(prompt, reply)
        delta.usage = Usage(prompt, sum(count.completion_tokens for count in self._counts.values()))


def _repeats(ids: list[int], known: list[int], total: int | None) -> bool:
    """Whether the ids of an event are all from the reply's start on; `total`: how many there are of them so far."""
    if total == len(ids):
        return True
    if total == len(known) + len(ids):
        return False
    return ids[: len(known)] == known


def _triples(meta: dict[str, Any]) -> Triples | None:
    """The pairs of log-probability and id, None where there are none."""
    given = meta.get("output_token_logprobs")
    if given is None:
        return None
    name = "output_token_logprobs"
    if not isinstance(given, list) or not all(isinstance(item, list) and len(item) >= 2 for item in given):
        fields.refuse(name, "a list of [log-probability, id, text]")
    ids = fields.ids({name: [item[1] for item in given]}, name) or []
    values = [item[0] for item in given]
    fields.numbers(values, name)
    return [(finite(value), token) for value, token in zip(values, ids, strict=True)]


def contradiction(ids: list[int], told: list[int] | None) -> str | None:
    """What is wrong where two lists of a reply's ids differ by more than a stop token, which one may leave out."""
    if told is None or told == ids or told == ids[:-1]:
        return None
    return "the engine's two lists of sampled ids differ"


def _tops(given: Any) -> dict[str, Any]:
    """Alternatives by their text; those without one have no place in the APIs."""
    if given is None:
        return {}
    if not isinstance(given, list) or not all(isinstance(item, list) and len(item) >= 2 for item in given):
        fields.refuse("output_top_logprobs", "a list of lists of [log-probability, id, text]")
    return {
        item[2]: number
        for item in given
        if len(item) > 2 and isinstance(item[2], str) and (number := finite(item[0])) is not None
    }


def _matched(place: dict[str, Any], name: str) -> int | str | None:
    """What ended the reply, under the name that SGLang has for it."""
    return fields.stop_reason({"stop_reason": place.get(name)})


def _version(place: dict[str, Any]) -> int | None:
    """The version of the weights, where it is a number (SGLang's is any text, `default` at first)."""
    value = fields.text(place, "weight_version")
    return int(value) if value.isascii() and value.isdecimal() and int(value) <= fields.MAX_VERSION else None
