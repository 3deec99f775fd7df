"""What a step must be before it is stored: checked, its arrays packed, its faults named.

Nothing here touches a store. A record that cannot be stored at all raises InvalidRequestError (the stores turn that
into a rejection of this one step); a record that contradicts itself is stored, quarantined with the counts.
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from agentworld.errors import InvalidRequestError
from agentworld.forest import TokenArray, token_array
from agentworld.pool.bounds import check_step, encode, is_finite, storable
from agentworld.records import Exchange, Step, check_id

INCLUDABLE = ("tokens", "messages", "logprobs")
ABORTED = frozenset({"abort", "aborted"})
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Step)
# Prints anything, cut in depth and length: what is too deep for JSON is too deep for repr too.
_printer = reprlib.Repr()
_printer.maxlevel = 20
_printer.maxdict = _printer.maxlist = _printer.maxtuple = 1000
_printer.maxstring = _printer.maxother = 10_000

# Set by the store, so no part of what the caller says.
_ASSIGNED = {"step_index": None, "readiness": "open", "late": False, "is_last": False}
_ARRAYS = {"prompt_ids": None, "response_ids": None, "response_mask": None, "response_logprobs": None}
_MESSAGES = {"prompt_messages": None, "response_message": None, "tools": None}


class Prepared(NamedTuple):
    """A step that may be stored. `rest`: the canonical JSON of all that is neither array nor message.

    `mask` is None where it is absent or all ones over the reply; `reasons`: why the step is excluded, as known without
    its trajectory; `rewards`: every named value, the primary one under `reward`.
    """

    step: Step
    prompt: TokenArray | None
    response: TokenArray | None
    mask: npt.NDArray[np.uint8] | None
    logprobs: npt.NDArray[np.float32] | None
    rest: bytes
    reasons: list[str]
    rewards: dict[str, float]
    prompt_length: int | None
    response_length: int | None


def prepare(step: Step) -> Prepared:
    """Check one step; InvalidRequestError names the field that cannot be stored."""
    with storable():
        return _prepared(step)


def _prepared(step: Step) -> Prepared:
    check_step(step)
    check_id(step.step_id, "step_id")
    check_id(step.trajectory_id, "trajectory_id")
    for name in ("group_id", "exchange_id", "parent_step_id", "supersedes"):
        if (value := getattr(step, name)) is not None:
            check_id(value, name)
    prompt = _ids(step.prompt_ids, "prompt_ids")
    response = _ids(step.response_ids, "response_ids")
    mask = _mask(step.response_mask)
    logprobs = _logprobs(step.response_logprobs)
    rewards = _rewards(step)
    reasons = [step.excluded_reason] if step.excluded_reason else []
    if faults := _faults(step, prompt, response, mask, logprobs):
        reasons.append("quarantined: " + ", ".join(faults))
    if step.finish_reason in ABORTED:
        reasons.append("aborted")
    if mask is not None and response is not None and len(mask) == len(response) and mask.all():
        mask = None
    rest = encode(msgspec.structs.replace(step, **_ASSIGNED, **_ARRAYS, **_MESSAGES))
    _decoder.decode(rest)  # Structs that Python code built are not checked by themselves.
    counts = (step.usage.prompt_tokens, step.usage.completion_tokens) if step.usage else (None, None)
    return Prepared(
        step,
        prompt,
        response,
        mask,
        logprobs,
        rest,
        reasons,
        rewards,
        len(prompt) if prompt is not None else _first(step.prompt_length, counts[0]),
        len(response) if response is not None else _first(step.response_length, counts[1]),
    )


def choices_of(exchange: Exchange) -> list[Step]:
    """The exchange's choices with what they leave open filled in from the exchange."""
    filled = []
    for choice in exchange.choices:
        changes: dict[str, object] = {
            "exchange_id": exchange.exchange_id,
            "trajectory_id": exchange.trajectory_id,
            "group_id": exchange.group_id,
            "channel": exchange.channel,
        }
        defaults = {
            "prompt_messages": exchange.messages,
            "tools": exchange.tools or None,
            "agent": exchange.agent,
            "model": exchange.model,
            "requested_model": exchange.requested_model,
            "policy": exchange.policy,
            "dialect": exchange.dialect,
            "sampling": exchange.sampling,
            "latency_ms": exchange.latency_ms,
        }
        changes.update({name: value for name, value in defaults.items() if getattr(choice, name) is None})
        if not choice.created_at:
            changes["created_at"] = exchange.created_at
        filled.append(msgspec.structs.replace(choice, **changes))
    return filled


def restore_arrays(
    step: Step,
    prompt: TokenArray | None,
    response: TokenArray | None,
    mask: npt.NDArray[np.uint8] | None,
    logprobs: npt.NDArray[np.float32] | None,
    include: Sequence[str],
) -> None:
    """Put stored arrays back on `step` as `include` (tokens, logprobs) asks; a mask that is absent is all ones."""
    if "tokens" in include:
        step.prompt_ids = prompt.tolist() if prompt is not None else None
        step.response_ids = response.tolist() if response is not None else None
        if mask is not None:
            step.response_mask = mask.tolist()
        elif response is not None:
            step.response_mask = [1] * len(response)
    if "logprobs" in include and logprobs is not None:
        step.response_logprobs = [None if value != value else value for value in logprobs.tolist()]


def check_include(include: Sequence[str]) -> None:
    """InvalidRequestError where `include` names something else than tokens, messages and logprobs."""
    for name in include:
        if name not in INCLUDABLE:
            raise InvalidRequestError(
                f"include takes {', '.join(INCLUDABLE)}; not {name!r}", path="include", hint="Leave the name out"
            )


def escaped_record(step: Step, limit: int = 65_536) -> str:
    """A rejected step as text for the dead letters, whatever is in it, cut at `limit` characters."""
    try:
        text = _encoder.encode(step).decode()
    except Exception:  # The record is broken in a way that JSON cannot hold, so its printed form is all there is.
        text = _printer.repr(msgspec.structs.asdict(step)).encode("utf-8", "backslashreplace").decode()
    return text[:limit]


def _ids(ids: list[int] | None, name: str) -> TokenArray | None:
    if ids is None:
        return None
    try:
        return token_array(ids)
    except InvalidRequestError as error:
        raise InvalidRequestError(error.message, path=name) from None


def _mask(mask: list[int] | None) -> npt.NDArray[np.uint8] | None:
    if mask is None:
        return None
    try:
        array = np.asarray(mask)
        if array.size == 0:
            return np.zeros(0, dtype=np.uint8)
        if array.ndim != 1 or array.dtype.kind not in "iub" or int(array.min()) < 0 or int(array.max()) > 1:
            raise ValueError
    except (ValueError, OverflowError):
        raise InvalidRequestError("response_mask must hold 0 and 1 only", path="response_mask") from None
    return array.astype(np.uint8)


def _logprobs(logprobs: list[float | None] | None) -> npt.NDArray[np.float32] | None:
    """float32 with NaN for null; what is not finite becomes null."""
    if logprobs is None:
        return None
    try:
        array = np.asarray(logprobs, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidRequestError(
            "response_logprobs must hold numbers and null only", path="response_logprobs"
        ) from None
    if array.size == 0:
        return np.zeros(0, dtype=np.float32)
    if array.ndim != 1:
        raise InvalidRequestError("response_logprobs must be a list of numbers", path="response_logprobs")
    # A double beyond float32 would turn infinite in the cast.
    return np.where(np.abs(array) <= np.finfo(np.float32).max, array, np.nan).astype(np.float32)


def _rewards(step: Step) -> dict[str, float]:
    rewards = dict(step.rewards)
    if step.reward is not None and rewards.setdefault("reward", step.reward) != step.reward:
        raise InvalidRequestError("reward and rewards.reward differ", path="reward", hint="Send one of them")
    for name, value in rewards.items():
        if not is_finite(value):
            raise InvalidRequestError(f"reward {name!r} must be a finite number", path=f"rewards.{name}")
    return {name: float(value) for name, value in rewards.items()}


def _faults(
    step: Step,
    prompt: TokenArray | None,
    response: TokenArray | None,
    mask: npt.NDArray[np.uint8] | None,
    logprobs: npt.NDArray[np.float32] | None,
) -> list[str]:
    if (prompt is None) != (response is None):
        return ["prompt_ids and response_ids go together, one is missing"]
    if prompt is None or response is None:
        if logprobs is not None or mask is not None:
            return ["log-probabilities or mask without response_ids"]
        return []
    faults = []
    for name, array in (("response_logprobs", logprobs), ("response_mask", mask)):
        if array is not None and len(array) != len(response):
            faults.append(f"{len(array)} {name} for {len(response)} response_ids")
    counted = [("prompt_length", step.prompt_length, prompt), ("response_length", step.response_length, response)]
    if step.usage is not None:
        counted.append(("usage.prompt_tokens", step.usage.prompt_tokens, prompt))
        counted.append(("usage.completion_tokens", step.usage.completion_tokens, response))
    for name, number, ids in counted:
        if number is not None and number != len(ids):
            faults.append(f"{name} is {number} but there are {len(ids)} ids")
    return faults


def _first(*numbers: int | None) -> int | None:
    return next((number for number in numbers if number is not None), None)
