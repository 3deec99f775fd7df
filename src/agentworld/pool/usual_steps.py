"""Steps, and exchanges, as nearly all are, which are told at a glance from those that need every check.

What a run's steps say again and again (names, a policy, how they are sampled) is checked in full once and remembered,
and of the rest only the types of Python's own are looked for. A step that is not usual is not wrong: it takes the long
way, which finds what is wrong with it, if anything.
"""

from __future__ import annotations

import operator
from typing import Any

import msgspec

from agentworld.errors import InvalidRequestError
from agentworld.pool.bounds import MAX_COUNT, MAX_NAME, NOT_STORABLE, check_exchange, check_policy, check_sampling
from agentworld.pool.step_text import said, said_text
from agentworld.records import Exchange, Policy, Sampling, Step, Usage, exact_json

_words_of = operator.attrgetter(
    "channel",
    "agent",
    "model",
    "requested_model",
    "dialect",
    "vocabulary",
    "finish_reason",
    "token_source",
    "logprob_space",
    "fork_reason",
)
_FLAT = frozenset((str, bool, int, type(None)))
_CONSTANT = (str, int, float, bool, tuple)
_INFINITY = float("inf")
_MOST, _LONGEST = 1024, 4096  # and bytes of JSON
# Words that were found good together, and records that were, by their identity, with their JSON; equal ones may differ
# in their types.
_words: set[tuple[str | None, ...]] = set()
_exchange_words: set[tuple[str | None, ...]] = set()
_records: dict[int, tuple[Policy | Sampling, Any]] = {}
_encoder = msgspec.json.Encoder()
_FIRST_MAPPED = 0xF4  # JSON without it, and without escapes, is stored as it is spoken


def is_usual(step: Step) -> bool:
    """Whether a step is seen to be of its types and in its bounds, but for ids, arrays, messages and tools."""
    try:
        if _words_of(step) not in _words:
            return False
    except TypeError:  # One has no hash.
        return False
    usage, created, took, metadata = step.usage, step.created_at, step.latency_ms, step.metadata
    if (
        step.choice_index != 0
        or step.choice_index.__class__ is not int
        or step.prompt_length is not None
        or step.response_length is not None
        or step.excluded_reason is not None
        or step.reward is not None
        or created.__class__ is not float
        or not -_INFINITY < created < _INFINITY
        or step.version_spans.__class__ is not tuple
        or step.version_spans
        or step.rewards.__class__ is not dict
        or step.rewards
        or step.labels.__class__ is not dict
        or step.labels
        or metadata.__class__ is not dict
    ):
        return False
    if took is not None and (took.__class__ is not float or not -_INFINITY < took < _INFINITY):
        return False
    if usage is not None and not (
        usage.__class__ is Usage
        and usage.prompt_tokens.__class__ is int
        and usage.completion_tokens.__class__ is int
        and 0 <= usage.prompt_tokens <= MAX_COUNT
        and 0 <= usage.completion_tokens <= MAX_COUNT
    ):
        return False
    for key, value in metadata.items():
        if key.__class__ is not str or value.__class__ not in _FLAT:
            return False
    return _is_good(step.policy, Policy) and _is_good(step.sampling, Sampling)


def remember(step: Step) -> None:
    """The words of a step that took the long way and was found good, so that others with them are usual."""
    words = _words_of(step)
    if all(word is None or word.__class__ is str for word in words):
        if len(_words) >= _MOST:
            _words.clear()
        _words.add(words)


def exchange_text(exchange: Exchange) -> bytes:
    """`check_exchange` of an exchange without what is not kept, in short for one that is seen to be good."""
    words = exchange.dialect, exchange.model, exchange.requested_model, exchange.channel, exchange.agent
    try:
        if words in _exchange_words and _is_usual(exchange):
            return _encoder.encode(kept_of(exchange, said_of(exchange.policy), said_of(exchange.sampling)))
    except NOT_STORABLE:  # A word without a hash, or with a lone surrogate.
        pass
    text = check_exchange(kept_of(exchange, exchange.policy, exchange.sampling))
    if all(word is None or word.__class__ is str for word in words):
        if len(_exchange_words) >= _MOST:
            _exchange_words.clear()
        _exchange_words.add(words)
    return text


def kept_of(exchange: Exchange, policy: Any, sampling: Any) -> Exchange:
    """What is kept of an exchange, with these records or their JSON."""
    return msgspec.structs.replace(
        exchange,
        messages=[],
        tools=[],
        choices=[],
        marks=[],
        only_group=None,
        only_channel=None,
        policy=policy,
        sampling=sampling,
    )


def said_of(record: Policy | Sampling | None) -> Any:
    """What stands for a record in JSON: its text, where that is known."""
    known = _records.get(id(record))
    return known[1] if known is not None and known[0] is record else record


def stored_text_of(record: Policy | Sampling) -> str | None:
    """A record's JSON as stores hold it, where it is known; what it holds cannot change then."""
    known = said_of(record)
    if known.__class__ is not msgspec.Raw:
        return None
    text = bytes(known)
    return None if _FIRST_MAPPED in text else text.decode()


def usual_text(step: Step) -> bytes:
    """`said_text` of a usual step."""
    try:
        return _encoder.encode(said(step, said_of(step.policy), said_of(step.sampling)))
    except UnicodeEncodeError:
        return said_text(step)


def _is_usual(kept: Exchange) -> bool:
    """Whether what is kept of an exchange is of its types and in its bounds, but for its words."""
    body, created, took = kept.body_digest, kept.created_at, kept.latency_ms
    return (
        kept.error is None
        and kept.retry_count.__class__ is int
        and 0 <= kept.retry_count <= MAX_COUNT
        and (kept.group_id is None or kept.group_id.__class__ is str)
        and body.__class__ is str
        and len(body) <= MAX_NAME
        and body.isascii()
        and body.isalnum()
        and created.__class__ is float
        and -_INFINITY < created < _INFINITY
        and (took is None or (took.__class__ is float and -_INFINITY < took < _INFINITY))
        and kept.sampling is not None
        and _is_good(kept.policy, Policy)
        and _is_good(kept.sampling, Sampling)
    )


def _is_good(record: Policy | Sampling | None, kind: type[Policy] | type[Sampling]) -> bool:
    if record is None:
        return True
    known = _records.get(id(record))
    if known is not None and known[0] is record and record.__class__ is kind:
        return True
    if record.__class__ is not kind:
        return False
    try:
        if isinstance(record, Policy):
            check_policy(record)
        else:
            check_sampling(record)
        text = exact_json.encode(record)
        exact_json.decode(text, kind)
    except (InvalidRequestError, *NOT_STORABLE):
        return False
    # A record cannot change, but what it holds may. What is kept stays in memory.
    if len(text) <= _LONGEST and all(
        value is None or value.__class__ in _CONSTANT for value in msgspec.structs.astuple(record)
    ):
        if len(_records) >= _MOST:
            _records.clear()
        # What is spelled with escapes is said together with all around it.
        _records[id(record)] = record, record if b"\\" in text else msgspec.Raw(text)
    return True
