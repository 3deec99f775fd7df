"""Chat replies that come whole, with ids and log-probabilities, into arrays: one delta, and no list of numbers.

Nearly all of such a body is three lists. They are cut out of its bytes and a mark is put in their place, so that the
decoder reads the rest alone and says where the marks stood; numpy reads the ids. None for whatever is not written as
engines write it, or has anything odd about it: `quick_replies` and then `openai_wire` read that.
"""

from __future__ import annotations

import secrets
import struct
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from agentworld.dialects.exchange import Delta
from agentworld.engines.reply_shapes import FLOOR, ChatMessage, Name, Token, TokenCounts, Version
from agentworld.forest import TokenArray
from agentworld.records import Usage

_MARK = secrets.randbits(62) | 1 << 61 | 1
"""No reply has this number. So where the decoder finds it, there stood what was cut out. It is large and odd, so that
no float equals it, such as it were with `.0` or `e0` from behind a list.
"""
_MARKED = str(_MARK).encode()
_PROMPT, _REPLY, _LOGPROBS = b'"prompt_token_ids":[', b'"token_ids":[', b'"logprobs":{"content":['
_AFTER_LOGPROBS = b']},"finish_reason":'
_FLOAT64, _UINT32 = np.dtype("f8"), np.dtype("<u4")
_MOST, _COMMA = 10**9, ord(",")
_TENS = [np.uint32(10**power) for power in range(1, 9)]


class WholeDelta(Delta, kw_only=True):
    """A whole reply in one piece, as nearly every plain one is: one choice with its end, ids and log-probabilities, of
    which none is null, and without tool calls.

    `sequence`: the ids of prompt and reply, of which the first `prompt_length` are the prompt's; `numbers`: the
    log-probabilities (float64), of which `highest` is one. Lists of them are made for who asks.
    """

    sequence: TokenArray
    prompt_length: int
    numbers: npt.NDArray[np.float64]
    highest: float

    @property  # type: ignore[misc]
    def prompt_ids(self) -> list[int]:  # type: ignore[override]  # Never set: it is what `sequence` says.
        """The ids of the prompt."""
        ids: list[int] = self.sequence[: self.prompt_length].tolist()
        return ids

    @property  # type: ignore[misc]
    def ids(self) -> list[int]:  # type: ignore[override]
        """The ids of the reply."""
        ids: list[int] = self.sequence[self.prompt_length :].tolist()
        return ids

    @property  # type: ignore[misc]
    def logprobs(self) -> list[float | None]:  # type: ignore[override]
        """The log-probabilities of the reply."""
        values: list[float | None] = self.numbers.tolist()
        return values


class _Logprobs(msgspec.Struct, gc=False):
    content: int | None = None


class _Choice(msgspec.Struct):
    index: int | None = None
    message: ChatMessage | None = None
    logprobs: _Logprobs | None = None
    finish_reason: Name | None = None
    stop_reason: int | str | None = None
    token_ids: int | None = None
    delta: Any = None
    prompt_token_ids: Any = None
    version_spans: Any = None
    provider_specific_fields: Any = None


class _Body(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: TokenCounts | None = None
    prompt_token_ids: int | None = None
    logprobs_mode: str | None = None
    policy_version: Version | None = None
    policy_run: Name | None = None
    version_spans: Any = None
    provider_specific_fields: Any = None
    error: Any = None


_decode = msgspec.json.Decoder(_Body).decode
_decode_tokens = msgspec.json.Decoder(list[Token]).decode


def read_whole(data: bytes) -> WholeDelta | None:
    """The reply of a chat body that has all there is; None for any other one."""
    if (prompt := data.rfind(_PROMPT)) < 0 or (reply := data.rfind(_REPLY, 0, prompt)) < 0:
        return None
    if (said := data.find(_LOGPROBS, 0, reply)) < 0 or (said_end := data.rfind(_AFTER_LOGPROBS, said, reply)) < 0:
        return None
    # Each from its bracket to behind the one that ends it.
    prompt, reply, said, said_end = prompt + len(_PROMPT), reply + len(_REPLY), said + len(_LOGPROBS) - 1, said_end + 1
    prompt_end, reply_end = data.find(b"]", prompt), data.find(b"]", reply)
    if prompt_end < 0 or reply_end > prompt:
        return None
    view = memoryview(data)
    try:
        rest = (view[:said], _MARKED, view[said_end : reply - 1], _MARKED, view[reply_end + 1 : prompt - 1], _MARKED)
        body = _decode(b"".join((*rest, view[prompt_end + 1 :])))
        values = [token.logprob for token in _decode_tokens(view[said:said_end])]
        numbers = np.frombuffer(struct.pack(f"{len(values)}d", *values), _FLOAT64)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, struct.error):  # The last: one is null.
        return None
    sequence = ids_of(b",".join((view[prompt:prompt_end], view[reply:reply_end])))
    # JSON has no number that is infinite or none.
    if sequence is None or not values or numbers.item(numbers.argmin()) <= FLOOR:
        return None
    length = len(sequence) - data.count(b",", reply, reply_end) - 1
    return _delta(body, sequence, length, numbers)


def _delta(
    body: _Body, sequence: TokenArray, prompt_length: int, numbers: npt.NDArray[np.float64]
) -> WholeDelta | None:
    """The delta, unless a mark is elsewhere than meant, or the rest of the body is not as usual."""
    choices, run, usage = body.choices, body.policy_run, body.usage
    if not choices or len(choices) != 1:
        return None
    choice = choices[0]
    message, logprobs, reason = choice.message, choice.logprobs, choice.finish_reason
    if (
        body.prompt_token_ids != _MARK
        or choice.token_ids != _MARK
        or logprobs is None
        or logprobs.content != _MARK
        or message is None
        or message.tool_calls
        or message.provider_specific_fields is not None
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
    return WholeDelta(
        text=message.content or message.refusal or "",
        reasoning=message.reasoning or message.reasoning_content or "",
        finish_reason=reason,
        stop_reason=choice.stop_reason,
        usage=None if usage is None else Usage(usage.prompt_tokens or 0, usage.completion_tokens or 0),
        policy_version=body.policy_version,
        policy_run=run or None,
        logprobs_mode=body.logprobs_mode or None,
        sequence=sequence,
        prompt_length=prompt_length,
        numbers=numbers,
        highest=numbers.item(numbers.argmax()),
    )


def ids_of(said: bytes) -> TokenArray | None:
    """Ids as JSON writes them in a list, with commas and nothing else between; None where one is no id below 10**9, or
    anything else stands there.
    """
    try:
        ids = np.fromstring(said, np.uint32, sep=",")
    except (ValueError, DeprecationWarning):  # It stops at what is no number, with a warning or an error.
        return None
    if not ids.size or (highest := ids.item(ids.argmax())) >= _MOST:
        return None
    signs = np.frombuffer(said, np.uint8)
    if signs.item(signs.argmin()) < _COMMA:  # Spaces alone are read as 0.
        return None
    # A zero ahead, a number that is too large (of which the lowest bits were taken) or what was not read: with each of
    # them there are more bytes than the digits of what was read and a comma between each two.
    length = 2 * ids.size - 1
    for ten in _TENS:
        if highest < ten:
            break
        length += int(np.count_nonzero(ids >= ten))
    return ids.astype(_UINT32, copy=False) if length == len(said) else None
