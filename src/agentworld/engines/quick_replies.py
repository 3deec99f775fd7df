"""Replies of OpenAI-like engines -> deltas: usual shapes, decoded into typed structs, as there is one for every token.

A reader gives None for whatever it does not know, be it unusual or broken; `openai_wire` then reads it, and says what
is wrong with it. So what is read here is read alike there: a test compares the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import msgspec

from agentworld.dialects.exchange import Delta, ToolCallDelta
from agentworld.engines.reply_fields import MAX_ID
from agentworld.engines.reply_shapes import (
    FLOOR,
    CallFunction,
    ChatMessage,
    Count,
    MessageCall,
    Name,
    Token,
    TokenCounts,
    Version,
)
from agentworld.engines.whole_replies import read_whole
from agentworld.errors import InvalidRequestError
from agentworld.forest import joined_ids
from agentworld.records import Usage

Reader = Callable[[bytes], list[Delta] | None]


class _ChatLogprobs(msgspec.Struct):
    content: list[Token] | None = None


class _TextLogprobs(msgspec.Struct):
    token_logprobs: list[float | None] | None = None


# Ids are looked at once they are read: the decoder takes far longer for numbers with bounds.
class _Choice(msgspec.Struct):
    index: Count | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    finish_reason: Name | None = None
    stop_reason: int | str | None = None
    version_spans: Any = None
    provider_specific_fields: Any = None


class _ChatChoice(_Choice):
    message: ChatMessage | None = None
    delta: ChatMessage | None = None
    logprobs: _ChatLogprobs | None = None


class _TextChoice(_Choice):
    text: str | None = None
    logprobs: _TextLogprobs | None = None


class _Body(msgspec.Struct):
    usage: TokenCounts | None = None
    prompt_token_ids: list[int] | None = None
    logprobs_mode: str | None = None
    policy_version: Version | None = None
    policy_run: Name | None = None
    version_spans: Any = None
    provider_specific_fields: Any = None
    error: Any = None


class _ChatBody(_Body):
    choices: list[_ChatChoice] | None = None


class _TextBody(_Body):
    choices: list[_TextChoice] | None = None


_chat_decoder = msgspec.json.Decoder(_ChatBody)
_text_decoder = msgspec.json.Decoder(_TextBody)


def read_chat(data: bytes) -> list[Delta] | None:
    """The deltas of a chat body or chunk."""
    if (whole := read_whole(data)) is not None:
        return [whole]
    try:
        body = _chat_decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    deltas: list[Delta] = []
    for choice in body.choices or ():
        delta = _begun(choice)
        if delta is None or (choice.delta is not None and choice.message is not None):
            return None
        said = choice.delta or choice.message
        if said is not None:
            if said.provider_specific_fields is not None:
                return None
            delta.text = said.content or said.refusal or ""
            delta.reasoning = said.reasoning or said.reasoning_content or ""
            if said.tool_calls:
                delta.tool_calls = tuple(map(_call, said.tool_calls, range(len(said.tool_calls))))
        if choice.logprobs is not None and choice.logprobs.content is not None:
            delta.logprobs = _finite([token.logprob for token in choice.logprobs.content])
        deltas.append(delta)
    return _whole(body, deltas)


def read_text(data: bytes) -> list[Delta] | None:
    """The deltas of a body or chunk of completions."""
    try:
        body = _text_decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    deltas = []
    for choice in body.choices or ():
        delta = _begun(choice)
        if delta is None:
            return None
        delta.text = choice.text or ""
        if choice.logprobs is not None and choice.logprobs.token_logprobs is not None:
            delta.logprobs = _finite(choice.logprobs.token_logprobs)
        deltas.append(delta)
    return _whole(body, deltas)


def _begun(choice: _Choice) -> Delta | None:
    """What choices of both kinds have."""
    if choice.version_spans is not None or choice.provider_specific_fields is not None:
        return None
    if not (_are_ids(choice.token_ids) and _are_ids(choice.prompt_token_ids)):
        return None
    if choice.finish_reason and "\0" in choice.finish_reason:
        return None
    return Delta(
        index=choice.index or 0,
        ids=choice.token_ids,
        prompt_ids=choice.prompt_token_ids,
        finish_reason=choice.finish_reason or None,
        stop_reason=choice.stop_reason,
    )


def _whole(body: _Body, deltas: list[Delta]) -> list[Delta] | None:
    """The deltas, with what holds for the whole call."""
    if body.error is not None or body.version_spans is not None or body.provider_specific_fields is not None:
        return None
    if not _are_ids(body.prompt_token_ids):
        return None
    if not deltas:
        deltas.append(Delta(index=-1))
    first = deltas[0]
    if body.usage is not None:
        first.usage = Usage(body.usage.prompt_tokens or 0, body.usage.completion_tokens or 0)
    if body.prompt_token_ids:
        first.prompt_ids = body.prompt_token_ids
    if body.policy_run and "\0" in body.policy_run:
        return None
    first.policy_run = body.policy_run or None
    if body.logprobs_mode or body.policy_version is not None:
        for delta in deltas:
            delta.logprobs_mode = body.logprobs_mode or None
            delta.policy_version = body.policy_version
    return deltas


def _call(call: MessageCall, position: int) -> ToolCallDelta:
    function = call.function or CallFunction()
    return ToolCallDelta(
        index=position if call.index is None else call.index,
        id=call.id or None,
        name=function.name or None,
        arguments=function.arguments or "",
    )


def _are_ids(ids: list[int] | None) -> bool:
    """Whether all of these numbers can be ids."""
    if not ids:
        return True
    if len(ids) == 1:  # As a piece of a stream has it.
        return 0 <= ids[0] <= MAX_ID
    try:
        joined_ids(ids)
    except InvalidRequestError:
        return False
    return True


def _finite(values: list[float | None]) -> list[float | None]:
    """None in the place of what is no finite number."""
    known = cast("list[float]", values)  # Once there is no None.
    if not values or (None not in values and min(known) > FLOOR and max(known) < math.inf):
        return values
    return [value if value is not None and math.isfinite(value) and value > FLOOR else None for value in values]


READERS: dict[str, Reader] = {"chat": read_chat, "completions": read_text}
