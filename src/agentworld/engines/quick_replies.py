"""Replies of OpenAI-like engines -> deltas: usual shapes, decoded into typed structs, as there is one for every token.

A reader gives None for whatever it does not know, be it unusual or broken; `openai_wire` then reads it, and says what
is wrong with it. So what is read here is read alike there: a test compares the two.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Annotated, Any, cast

import msgspec
import numpy as np
import numpy.typing as npt

from agentworld.dialects.exchange import Delta, ToolCallDelta
from agentworld.engines.reply_fields import MAX_COUNT, MAX_ID, MAX_NAME, MAX_VERSION
from agentworld.errors import InvalidRequestError
from agentworld.forest import TokenArray, joined_ids
from agentworld.records import Usage

FLOOR = -9999.0
"""What vLLM writes where it has no finite log-probability."""
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
Version = Annotated[int, msgspec.Meta(ge=0, le=MAX_VERSION)]
Name = Annotated[str, msgspec.Meta(max_length=MAX_NAME)]
Reader = Callable[[bytes], list[Delta] | None]
_FLOAT64 = np.dtype("f8")


class WholeDelta(Delta, kw_only=True):
    """A whole reply in one piece, as nearly every plain one is: one choice with its end, ids and log-probabilities, of
    which none is null, and without tool calls.

    `sequence`: the ids of prompt and reply, and `numbers`: the log-probabilities (float64), each in one array for all
    who need it, as the lists take longer to go through each time; `highest` of these.
    """

    sequence: TokenArray
    numbers: npt.NDArray[np.float64]
    highest: float


class _Usage(msgspec.Struct):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct):
    index: Count | None = None
    id: str | None = None
    function: _Function | None = None


class _Token(msgspec.Struct, gc=False):
    logprob: float | None = None


class _ChatLogprobs(msgspec.Struct):
    content: list[_Token] | None = None


class _Message(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None
    provider_specific_fields: Any = None


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
    message: _Message | None = None
    delta: _Message | None = None
    logprobs: _ChatLogprobs | None = None


class _TextChoice(_Choice):
    text: str | None = None
    logprobs: _TextLogprobs | None = None


class _Body(msgspec.Struct):
    usage: _Usage | None = None
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
    try:
        body = _chat_decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    choices = body.choices or ()
    if len(choices) == 1 and (whole := _one_piece(body, choices[0])) is not None:
        return [whole]
    deltas: list[Delta] = []
    for choice in choices:
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


def _one_piece(body: _ChatBody, choice: _ChatChoice) -> WholeDelta | None:
    """The reply of a body that has all there is; None where it is another one, or has anything odd about it."""
    prompt, ids, message, logprobs = body.prompt_token_ids, choice.token_ids, choice.message, choice.logprobs
    reason, run, usage = choice.finish_reason, body.policy_run, body.usage
    if (
        not prompt
        or not ids
        or message is None
        or message.tool_calls
        or message.provider_specific_fields is not None
        or logprobs is None
        or not logprobs.content
        or not reason
        or "\0" in reason
        or choice.index
        or choice.delta is not None
        or choice.prompt_token_ids is not None
        or choice.version_spans is not None
        or choice.provider_specific_fields is not None
        or body.error is not None
        or body.version_spans is not None
        or body.provider_specific_fields is not None
        or (run and "\0" in run)
    ):
        return None
    values = [token.logprob for token in logprobs.content]
    try:
        numbers = np.frombuffer(struct.pack(f"{len(values)}d", *values), _FLOAT64)
        sequence = joined_ids(prompt, ids)
    except (struct.error, InvalidRequestError):  # One is null; one is no id.
        return None
    # JSON has no number that is infinite or none.
    if numbers.item(numbers.argmin()) <= FLOOR:
        return None
    return WholeDelta(
        text=message.content or message.refusal or "",
        reasoning=message.reasoning or message.reasoning_content or "",
        ids=ids,
        logprobs=values,
        finish_reason=reason,
        stop_reason=choice.stop_reason,
        prompt_ids=prompt,
        usage=None if usage is None else Usage(usage.prompt_tokens or 0, usage.completion_tokens or 0),
        policy_version=body.policy_version,
        policy_run=run or None,
        logprobs_mode=body.logprobs_mode or None,
        sequence=sequence,
        numbers=numbers,
        highest=numbers.item(numbers.argmax()),
    )


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


def _call(call: _Call, position: int) -> ToolCallDelta:
    function = call.function or _Function()
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
