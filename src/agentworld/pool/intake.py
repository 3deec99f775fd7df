"""What a step must be before it is stored: checked, its arrays packed, its faults named.

Nothing here touches a store. A record that cannot be stored at all raises InvalidRequestError (the stores turn that
into a rejection of this one step); a record that contradicts itself is stored, quarantined with the counts.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from agentworld.errors import InvalidRequestError
from agentworld.forest import TokenArray, token_array
from agentworld.pool.bounds import NOT_STORABLE, check_name, check_step, is_finite, refusal
from agentworld.pool.lacks import lacks
from agentworld.records import Exchange, Step, Tool, check_depth, check_id, exact_json

INCLUDABLE = ("tokens", "messages", "logprobs")
ABORTED = frozenset({"abort", "aborted"})
_decoder = msgspec.json.Decoder(Step)
# Prints anything, cut in depth and length: what is too deep for JSON is too deep for repr too.
_printer = reprlib.Repr()
_printer.maxlevel = 20
_printer.maxdict = _printer.maxlist = _printer.maxtuple = 1000
_printer.maxstring = _printer.maxother = 10_000
_KNOWN_TOOLS = 64
_known_tools: set[bytes] = set()
_IDS = ("group_id", "exchange_id", "parent_step_id", "supersedes")
_ARRAYS = ("prompt_ids", "response_ids", "response_mask", "response_logprobs")
_NAMES = ("channel", "agent", "model", "requested_model", "dialect", "vocabulary", "finish_reason", "excluded_reason")


class _Said(msgspec.Struct):
    """All that a caller says of a step beside arrays and messages, as the step's digest is over it.

    What the store sets and what has its own digest stands as it does in a step without it. Pools hold digests over
    this, so it stays as it is when a step gets fields that the store sets.
    """

    step_id: str
    trajectory_id: str
    exchange_id: str | None
    choice_index: int
    group_id: str | None
    channel: str
    step_index: None
    parent_step_id: str | None
    supersedes: str | None
    fork_reason: str | None
    agent: str | None
    model: str | None
    requested_model: str | None
    policy: Any
    version_spans: Any
    dialect: str | None
    token_source: str
    vocabulary: str | None
    prompt_ids: None
    response_ids: None
    response_mask: None
    response_logprobs: None
    logprob_space: str | None
    prompt_messages: None
    tools: None
    response_message: None
    prompt_length: int | None
    response_length: int | None
    sampling: Any
    finish_reason: str | None
    usage: Any
    rewards: Any
    reward: float | None
    labels: Any
    readiness: str
    excluded_reason: str | None
    late: bool
    is_last: bool
    created_at: float
    latency_ms: float | None
    metadata: Any


class Prepared(NamedTuple):
    """A step that may be stored. `rest`: the canonical JSON of all that is neither array nor message.

    `mask` is None where it is absent or all ones over the reply; `reasons`: why the step is excluded, as known without
    its trajectory; `rewards`: every named value, the primary one under `reward`; `sampled`: how many reply tokens the
    policy sampled; `lacks`: the bits of pool.lacks.
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
    sampled: int
    lacks: int


def prepare(step: Step) -> Prepared:
    """Check one step; InvalidRequestError names the field that cannot be stored.

    Arrays of numpy may stand in the place of lists; they are not copied, so they must stay as they are until the step
    is stored.
    """
    try:
        return _prepared(step)
    except NOT_STORABLE as error:
        raise refusal(error) from None


def _prepared(step: Step) -> Prepared:
    check_step(step)
    check_id(step.step_id, "step_id")
    check_id(step.trajectory_id, "trajectory_id")
    for name in _IDS:
        if (value := getattr(step, name)) is not None:
            check_id(value, name)
    if step.supersedes == step.step_id:
        raise InvalidRequestError("a step cannot supersede itself", path="supersedes")
    rewards = _rewards(step)
    rest = _rest(step)
    if step.tools is not None:
        _check_tools(step.tools)
    prompt = _ids(step.prompt_ids, "prompt_ids")
    response = _ids(step.response_ids, "response_ids")
    mask = _mask(step.response_mask)
    logprobs = _logprobs(step.response_logprobs)
    reasons = [step.excluded_reason] if step.excluded_reason else []
    if faults := _faults(step, prompt, response, mask, logprobs):
        reasons.append("quarantined: " + ", ".join(faults))
    if step.finish_reason in ABORTED:
        reasons.append("aborted")
    if mask is not None and response is not None and len(mask) == len(response) and mask.all():
        mask = None
    usage = step.usage
    response_length = len(response) if response is not None else step.response_length
    if response_length is None and usage is not None:
        response_length = usage.completion_tokens
    prompt_length = len(prompt) if prompt is not None else step.prompt_length
    if prompt_length is None and usage is not None:
        prompt_length = usage.prompt_tokens
    sampled = 0 if response is None else len(response) if mask is None else int(mask.sum())
    said = step.prompt_messages is not None
    lacking = lacks(response is not None, logprobs is not None, said, step.response_message is not None)
    return Prepared(
        step,
        prompt,
        response,
        mask,
        logprobs,
        rest,
        reasons,
        rewards,
        prompt_length,
        response_length,
        sampled,
        lacking,
    )


def _rest(step: Step) -> bytes:
    said = _Said(
        step.step_id,
        step.trajectory_id,
        step.exchange_id,
        step.choice_index,
        step.group_id,
        step.channel,
        None,
        step.parent_step_id,
        step.supersedes,
        step.fork_reason,
        step.agent,
        step.model,
        step.requested_model,
        step.policy,
        step.version_spans,
        step.dialect,
        step.token_source,
        step.vocabulary,
        None,
        None,
        None,
        None,
        step.logprob_space,
        None,
        None,
        None,
        step.prompt_length,
        step.response_length,
        step.sampling,
        step.finish_reason,
        step.usage,
        step.rewards,
        step.reward,
        step.labels,
        "open",
        step.excluded_reason,
        False,
        False,
        step.created_at,
        step.latency_ms,
        step.metadata,
    )
    text = exact_json.encode(said)
    if b"\\u" in text:
        # Only an escape can be U+0000 or a lone surrogate, and nearly no step has one.
        for name in _NAMES:
            check_name(getattr(step, name), name)
        for name in step.rewards:
            check_name(name, "rewards")
        exact_json.decode(text, Step)
    else:
        _decoder.decode(text)  # Structs that Python code built are not checked by themselves.
    return text


def _check_tools(tools: Sequence[Any]) -> None:
    """Depths and numbers of tools; those of the last steps are known, so the walk over them is rare."""
    try:
        text = exact_json.encode(tools)
    except RecursionError:
        text = b""
    if text in _known_tools:
        return
    check_depth(tools, "tools")
    exact_json.decode(text, list[Tool])
    if b"null" not in text:  # NaN would be spelled so too.
        if len(_known_tools) >= _KNOWN_TOOLS:
            _known_tools.clear()
        _known_tools.add(text)


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
        text = exact_json.encode(with_lists(step)).decode()
    except Exception:  # The record is broken in a way that JSON cannot hold, so its printed form is all there is.
        text = _printer.repr(msgspec.structs.asdict(step)).encode("utf-8", "backslashreplace").decode()
    return text[:limit]


def with_lists(step: Step) -> Step:
    """The step with lists in the place of arrays, which JSON has not."""
    arrays = {name: getattr(step, name) for name in _ARRAYS}
    lists = {name: array.tolist() for name, array in arrays.items() if isinstance(array, np.ndarray)}
    if "response_logprobs" in lists:
        lists["response_logprobs"] = [value if math.isfinite(value) else None for value in lists["response_logprobs"]]
    return msgspec.structs.replace(step, **lists) if lists else step


def _ids(ids: Sequence[int] | TokenArray | None, name: str) -> TokenArray | None:
    if ids is None:
        return None
    try:
        return token_array(ids)
    except InvalidRequestError as error:
        raise InvalidRequestError(error.message, path=name) from None


def _mask(mask: Sequence[int] | npt.NDArray[Any] | None) -> npt.NDArray[np.uint8] | None:
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
    return array.astype(np.uint8, copy=False)


def _logprobs(logprobs: Sequence[float | None] | npt.NDArray[Any] | None) -> npt.NDArray[np.float32] | None:
    """float32 with NaN for null; what is not finite becomes null."""
    if logprobs is None:
        return None
    try:
        narrow = isinstance(logprobs, np.ndarray) and logprobs.dtype == np.float32
        array = np.asarray(logprobs, dtype=np.float32 if narrow else np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidRequestError(
            "response_logprobs must hold numbers and null only", path="response_logprobs"
        ) from None
    if array.size == 0:
        return np.zeros(0, dtype=np.float32)
    if array.ndim != 1:
        raise InvalidRequestError("response_logprobs must be a list of numbers", path="response_logprobs")
    if narrow and bool(np.isfinite(array).all()):
        return array.astype("<f4", copy=False)
    # A double beyond float32 would turn infinite in the cast.
    return np.where(np.abs(array) <= np.finfo(np.float32).max, array, np.nan).astype(np.float32)


def _rewards(step: Step) -> dict[str, float]:
    rewards = dict(step.rewards) if step.rewards else {}
    if step.reward is not None and rewards.setdefault("reward", step.reward) != step.reward:
        raise InvalidRequestError("reward and rewards.reward differ", path="reward", hint="Send one of them")
    if not rewards:
        return rewards
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
