"""What records may hold beside what their types say: numbers in range, JSON that is not too deep, text that is Unicode.

Storage has 64-bit integers, sums of token counts must fit in one, and what is stored must be readable again.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator, Sequence

import msgspec

from agentworld.errors import InvalidRequestError
from agentworld.records import (
    Exchange,
    NewTrajectory,
    Policy,
    Reward,
    Sampling,
    Step,
    Usage,
    VersionSpan,
    check_depth,
    exact_json,
)

_NOT_IN_NAMES = re.compile("[\x00\ud800-\udfff]")
MAX_COUNT = 2**31 - 1
MAX_INTEGER = 2**63 - 1
# One record that was found good; a whole run mostly shares one.
_last_sampling: list[Sampling | None] = [None]
_SAMPLING_FLOATS = ["temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"]
_STEP_COUNTS = ("choice_index", "prompt_length", "response_length")
_SAMPLING_NUMBERS = ("top_k", "max_tokens", "min_tokens", "seed", "n")


def encode(value: object) -> bytes:
    """Canonical JSON, which digests are over; InvalidRequestError where a value is no JSON."""
    with storable():
        return exact_json.encode(value)


# What a value that is no JSON, or of a wrong type, raises on its way through JSON.
NOT_STORABLE = (msgspec.ValidationError, TypeError, ValueError, OverflowError, RecursionError)


@contextlib.contextmanager
def storable(path: str = "") -> Iterator[None]:
    """What JSON cannot hold, or has the wrong type, as an InvalidRequestError; `path`: of the record, with a dot."""
    try:
        yield
    except NOT_STORABLE as error:
        raise refusal(error, path) from None


def refusal(error: Exception, path: str = "") -> InvalidRequestError:
    """One of NOT_STORABLE as an error of ours."""
    if isinstance(error, msgspec.ValidationError):
        message, _, where = str(error).partition(" - at ")
        return InvalidRequestError(message, path=(path + where.strip("`$.")).rstrip(".") or None)
    return InvalidRequestError(f"the record is no JSON: {error}", path=path.rstrip(".") or None)


def check_name(value: object, path: str) -> None:
    """InvalidRequestError where a name, such as that of an agent or a model, holds U+0000 or a lone surrogate.

    Contents may hold them. What is no text is left to the check of types.
    """
    if isinstance(value, str) and (found := _NOT_IN_NAMES.search(value)) is not None:
        raise InvalidRequestError(
            f"a name cannot hold U+{ord(found.group()):04X}", path=path, hint="Leave the character out"
        )


def _encode_checked(record: object, kind: type[object]) -> bytes:
    # Structs that Python code built are not checked by themselves.
    text = exact_json.encode(record)
    exact_json.decode(text, kind)
    return text


def check_integer(value: int | None, path: str, lowest: int = 0, highest: int = MAX_COUNT) -> None:
    """InvalidRequestError where the number is out of range; what is no number is left to the check of types."""
    if isinstance(value, int) and not lowest <= value <= highest:
        shown = str(value) if abs(value) < 10**30 else "a longer one"  # Python refuses to print very long numbers.
        raise InvalidRequestError(f"{path} must be from {lowest} to {highest}, not {shown}", path=path)


def is_finite(value: object) -> bool:
    """Whether a value is a number that a double can hold."""
    try:
        return isinstance(value, (int, float)) and math.isfinite(value)
    except OverflowError:
        return False


def check_seconds(value: float | None, path: str) -> None:
    """InvalidRequestError where a time, a duration or another number is not finite."""
    if isinstance(value, (int, float)) and not is_finite(value):
        raise InvalidRequestError(f"{path} must be a finite number", path=path)


def check_policy_record(policy: Policy) -> None:
    """Version and types of a policy that is published."""
    check_policy_version(policy, "version")
    with storable():
        _encode_checked(policy, Policy)


def check_policy_version(policy: Policy | None, path: str = "policy.version") -> None:
    """Versions count from 0."""
    if isinstance(policy, Policy):
        check_integer(policy.version, path, highest=MAX_INTEGER)


def check_step(step: Step) -> None:
    """Numbers and depths of a step, but for those of its tools."""
    for name in _STEP_COUNTS:
        number = getattr(step, name)
        if number is not None:
            check_integer(number, name)
    if isinstance(step.usage, Usage):
        check_integer(step.usage.prompt_tokens, "usage.prompt_tokens")
        check_integer(step.usage.completion_tokens, "usage.completion_tokens")
    if step.policy is not None:
        check_policy_version(step.policy)
    if step.version_spans:
        _check_spans(step.version_spans)
    check_seconds(step.created_at, "created_at")
    check_seconds(step.latency_ms, "latency_ms")
    if step.labels:
        check_depth(step.labels, "labels")
    if step.metadata:
        check_depth(step.metadata, "metadata")
    if step.sampling is not None:
        _check_sampling(step.sampling)


def _check_spans(spans: Sequence[VersionSpan]) -> None:
    for number, span in enumerate(spans):
        if isinstance(span, VersionSpan):
            check_integer(span.start, f"version_spans[{number}].start")
            check_integer(span.version, f"version_spans[{number}].version", highest=MAX_INTEGER)


def check_exchange(kept: Exchange) -> bytes:
    """Numbers, depths and types of an exchange without its messages, tools and choices; returns its canonical JSON."""
    check_integer(kept.retry_count, "retry_count")
    check_policy_version(kept.policy)
    for name in ("created_at", "latency_ms"):
        check_seconds(getattr(kept, name), name)
    check_depth(kept.error, "error")
    for name in ("model", "requested_model", "agent", "channel", "dialect", "body_digest"):
        check_name(getattr(kept, name), name)
    _check_sampling(kept.sampling)
    with storable():
        return _encode_checked(kept, Exchange)


def check_new_trajectory(new: NewTrajectory) -> None:
    """Numbers, depths and types of the settings of a trajectory."""
    check_integer(new.group_size, "group_size", lowest=1)
    check_integer(new.rollout_index, "rollout_index")
    check_integer(new.attempt, "attempt")
    for name in ("agent", "channel", "user"):
        check_name(getattr(new, name), name)
    if new.user == "":
        raise InvalidRequestError("user is empty", path="user", hint="Leave it out where it is nobody's")
    check_seconds(new.priority, "priority")
    check_seconds(new.group_timeout, "group_timeout")
    if isinstance(new.group_timeout, (int, float)) and new.group_timeout <= 0:
        raise InvalidRequestError("group_timeout must be over 0 seconds", path="group_timeout")
    check_depth(new.task, "task")
    check_depth(new.metadata, "metadata")
    with storable():
        _encode_checked(new, NewTrajectory)


def check_reward_record(reward: Reward, path: str) -> None:
    """Value, time, depth and types of a reward."""
    if not is_finite(reward.value):
        raise InvalidRequestError("a reward must be a finite number", path=f"{path}.value", hint="Leave it out instead")
    check_seconds(reward.created_at, f"{path}.created_at")
    check_depth(reward.details, f"{path}.details")
    for name in ("name", "source"):
        check_name(getattr(reward, name), f"{path}.{name}")
    with storable(f"{path}."):
        _encode_checked(reward, Reward)


def _check_sampling(sampling: Sampling | None) -> None:
    if sampling is _last_sampling[0] or not isinstance(sampling, Sampling):
        return
    for name in _SAMPLING_NUMBERS:
        check_integer(getattr(sampling, name), f"sampling.{name}", lowest=-MAX_INTEGER - 1, highest=MAX_INTEGER)
    for name in _SAMPLING_FLOATS:
        check_seconds(getattr(sampling, name), f"sampling.{name}")
    if sampling.logit_bias:
        check_depth(sampling.logit_bias, "sampling.logit_bias")
    for number, token in enumerate(sampling.stop_token_ids):
        check_integer(token, f"sampling.stop_token_ids[{number}]", highest=MAX_INTEGER)
    check_depth(sampling.tool_choice, "sampling.tool_choice")
    check_depth(sampling.response_format, "sampling.response_format")
    _last_sampling[0] = sampling
