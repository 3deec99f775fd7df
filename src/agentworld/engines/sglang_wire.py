"""Replies of SGLang -> deltas.

The ids are those of `meta_info.output_token_logprobs`, a list of [log-probability, id, text], where each number stands
beside its id. Streams of `/generate` repeat everything from the reply's start with each event, unless the server runs
with `--incremental-streaming-output`; the count of tokens so far tells which.
"""

from __future__ import annotations

from typing import Any

from agentworld.dialects.exchange import Delta
from agentworld.engines import reply_fields as fields
from agentworld.engines.openai_wire import NO_KEY, decode, decode_any, finite, raise_error, read_body, unreal
from agentworld.engines.redact import Redactor
from agentworld.errors import EngineError
from agentworld.records import Usage

Pairs = list[tuple[float | None, int]]
PAIRS = "output_token_logprobs"


def read_chat(data: bytes, *, entries: bool, redactor: Redactor = NO_KEY) -> list[Delta]:
    """The deltas of a chat body or chunk; a chunk has no ids."""
    body = decode(data, redactor)
    deltas = read_body(body, kind="chat", entries=entries, redactor=redactor)
    version = _version(fields.mapping(body, "metadata"))
    for choice, delta in zip(fields.objects(body, "choices") or [], deltas, strict=False):
        delta.stop_reason = _matched(choice, "matched_stop")
        delta.policy_version = version
        meta = fields.mapping(choice, "meta_info")
        pairs, told = _list(meta, PAIRS), fields.ids(choice, "response_token_ids")
        if pairs is not None:
            found = _pairs(pairs)
            delta.ids = [token for _, token in found]
            delta.logprobs = [value for value, _ in found]
            delta.fault = unreal(pair[0] for pair in pairs) or contradiction(delta.ids, told)
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
        """Put what is new since the last event on the delta; whether the event repeats what came before.

        Only what is new is looked at, as streams that repeat themselves grow with the square of their length. The last
        event is compared whole.
        """
        pairs, told = _list(meta, PAIRS), _list(item, "output_ids")
        given = pairs if pairs is not None else told
        if given is None:
            return True
        known = self._ids.setdefault(delta.index, [])
        total = fields.whole(meta, "completion_tokens", fields.MAX_COUNT)
        if total == len(given):
            repeats = True
        elif total == len(known) + len(given):
            repeats = False
        else:
            repeats = _ids_of(given[: len(known)], pairs is not None) == known
        begin = len(known) if repeats else 0
        if begin > len(given):
            delta.fault = "the engine took sampled ids back"
        if pairs is not None:
            found = _pairs(pairs[begin:])
            delta.ids = [token for _, token in found]
            delta.logprobs = [value for value, _ in found]
            delta.fault = delta.fault or unreal(pair[0] for pair in pairs[begin:])
        else:
            delta.ids = fields.ids({"output_ids": given[begin:]}, "output_ids") or []
        known += delta.ids
        if meta.get("finish_reason") is not None:
            delta.fault = delta.fault or self._compare(delta, repeats, given, pairs, told)
        if self._entries and pairs is not None:
            tops = _list(meta, "output_top_logprobs") or []
            delta.entries = [
                {"token": _text(pair), "logprob": value, "tops": _tops(tops[place] if place < len(tops) else None)}
                for place, (pair, value) in enumerate(
                    zip(pairs[begin:], delta.logprobs or [], strict=True), start=begin
                )
            ]
        return repeats

    def _compare(
        self, delta: Delta, repeats: bool, given: list[Any], pairs: list[Any] | None, told: list[Any] | None
    ) -> str | None:
        """What the last event says against the ones before it, or against itself."""
        ids = self._ids[delta.index] if repeats else delta.ids or []
        if repeats and _ids_of(given, pairs is not None) != ids:
            return "the engine changed sampled ids"
        return contradiction(ids, None if told is None else fields.ids({"output_ids": told}, "output_ids"))

    def _end(self, delta: Delta, ended: Any, meta: dict[str, Any]) -> None:
        if isinstance(ended, dict):
            delta.finish_reason = fields.name(ended, "type") or None
            delta.stop_reason = _matched(ended, "matched")
        else:
            delta.finish_reason = fields.name(meta, "finish_reason")
        prompt, reply = (fields.whole(meta, name, fields.MAX_COUNT) for name in ("prompt_tokens", "completion_tokens"))
        if prompt is None or reply is None:
            return
        self._counts[delta.index] = Usage(prompt, reply)
        delta.usage = Usage(prompt, fields.summed(count.completion_tokens for count in self._counts.values()))


def _list(place: dict[str, Any], name: str) -> list[Any] | None:
    value = place.get(name)
    if value is not None and not isinstance(value, list):
        fields.refuse(name, "a list")
    return value


def _ids_of(items: list[Any], paired: bool) -> list[Any]:
    """The ids in a list of pairs or of ids, whatever else may stand there."""
    return [item[1] if isinstance(item, list) and len(item) > 1 else None for item in items] if paired else items


def _pairs(given: list[Any]) -> Pairs:
    """Log-probabilities and ids."""
    if not all(isinstance(item, list) and len(item) >= 2 for item in given):
        fields.refuse(PAIRS, "a list of [log-probability, id, text]")
    ids = fields.ids({PAIRS: [item[1] for item in given]}, PAIRS) or []
    values = [item[0] for item in given]
    fields.numbers(values, PAIRS)
    return [(finite(value), token) for value, token in zip(values, ids, strict=True)]


def _text(pair: list[Any]) -> str:
    """A token's text, which stands behind its id where the server was asked for it."""
    return pair[2] if len(pair) > 2 and isinstance(pair[2], str) else ""


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
    if not (value.isascii() and value.isdecimal() and len(value) <= 100):  # Python reads no number of 5,000 digits.
        return None
    return int(value) if int(value) <= fields.MAX_VERSION else None
