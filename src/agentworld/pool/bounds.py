"""What records may hold beside what their types say: numbers in range, JSON that is not too deep, text that is Unicode.

Storage has 64-bit integers, sums of token counts must fit in one, and what is stored must be readable again.
"""

from __future__ import annotations

import contextlib
import math
import operator
import time
from collections.abc import Iterator, Sequence
from typing import Any, get_args

import msgspec

from agentworld.errors import InvalidRequestError
from agentworld.pool.plain_values import as_number, plain_json
from agentworld.records import MAX_NAME as MAX_NAME
from agentworld.records import (
    Exchange,
    FunctionCall,
    MediaPart,
    Message,
    NewTrajectory,
    Policy,
    Reward,
    Role,
    Sampling,
    Step,
    TextPart,
    ToolCall,
    Usage,
    VersionSpan,
    check_depth,
    exact_json,
    hint_of_values,
)
from agentworld.records import check_name as check_name

MAX_COUNT = 2**31 - 1
MAX_INTEGER = 2**63 - 1
CLOCKS_DIFFER = 86_400.0
"""Seconds that the time of a signal may lie in the future, as clocks of machines differ."""
# One record that was found good; a whole run mostly shares one.
_last_sampling: list[Sampling | None] = [None]
_last_policy: list[Policy | None] = [None]
_SAMPLING_FLOATS = ["temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"]
_STEP_NAMES = ("channel", "agent", "model", "requested_model", "dialect", "vocabulary", "finish_reason")
_names_of = operator.attrgetter(*_STEP_NAMES)
# Names of a step that were found good together; steps share few.
_KNOWN_NAMES = 1024
_known_names: set[tuple[str | None, ...]] = set()
_STEP_OBJECTS = ("labels", "metadata")
# Looked at before their JSON, which says null of a float that is no number.
_STEP_TEXTS = ("excluded_reason", "fork_reason", "logprob_space")
_message = msgspec.json.Decoder(Message)
_ROLES = get_args(Role)
_TRAJECTORY_NUMBERS = ("group_size", "rollout_index", "attempt", "priority", "group_timeout")
_SAMPLING_JSON = ("logit_bias", "tool_choice", "response_format")
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
        place = (path + where.strip("`$.")).rstrip(".")
        return InvalidRequestError(message, path=place or None, hint=hint_of_values(message, place))
    return InvalidRequestError(f"the record is no JSON: {error}", path=path.rstrip(".") or None)


def check_names(record: object, names: Sequence[str], prefix: str = "") -> None:
    """`check_name` of those of these fields of a record that are not None."""
    for name in names:
        if (value := getattr(record, name)) is not None:
            check_name(value, prefix + name)


def wrong_type(value: object, wanted: str, path: str) -> InvalidRequestError:
    """The error of a value that is not what its field takes."""
    return InvalidRequestError(f"this must be {wanted}, not {type(value).__name__}", path=path)


def _check_kind(value: object, kind: type | tuple[type, ...], wanted: str, path: str) -> None:
    if value is not None and not isinstance(value, kind):
        raise wrong_type(value, wanted, path)


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


def check_moment(value: float | None, path: str) -> None:
    """InvalidRequestError where a time at which something was said is before 1970 or over a day from now."""
    check_seconds(value, path)
    if isinstance(value, (int, float)) and not 0 <= value <= time.time() + CLOCKS_DIFFER:
        raise InvalidRequestError(
            f"{path} must lie between 1970 and a day from now, not at {float(value):g} s",
            path=path,
            hint="Send seconds since 1970, not milliseconds, or leave it out for now",
        )


def check_policy_record(policy: Policy) -> None:
    """Names, version and types of a policy that is published."""
    if not isinstance(policy, Policy):
        raise wrong_type(policy, "a Policy", "policy")
    check_policy(policy, "")
    with storable():
        _encode_checked(policy, Policy)


def check_policy(policy: Policy | None, prefix: str = "policy.") -> None:
    """Names and version; versions count from 0."""
    if policy is None:
        return
    if not isinstance(policy, Policy):
        raise wrong_type(policy, "a Policy", prefix.rstrip(".") or "policy")
    check_names(policy, ("model", "run"), prefix)
    check_integer(policy.version, f"{prefix}version", highest=MAX_INTEGER)


def check_step(step: Step) -> None:
    """Types, names, numbers and depths of a step, but for its arrays, what is in its messages, and its tools."""
    names = _names_of(step)
    try:
        known = names in _known_names
    except TypeError:  # A value that is no text, nor anything else that has a hash.
        known = False
    if not known:
        check_names(step, _STEP_NAMES)
        if len(_known_names) >= _KNOWN_NAMES:
            _known_names.clear()
        _known_names.add(names)
    for name in _STEP_TEXTS:
        _check_kind(getattr(step, name), str, "a text", name)
    if step.choice_index != 0:
        check_integer(step.choice_index, "choice_index")
    if step.prompt_length is not None:
        check_integer(step.prompt_length, "prompt_length")
    if step.response_length is not None:
        check_integer(step.response_length, "response_length")
    if step.usage is not None:
        if not isinstance(step.usage, Usage):
            raise wrong_type(step.usage, "a Usage", "usage")
        check_integer(step.usage.prompt_tokens, "usage.prompt_tokens")
        check_integer(step.usage.completion_tokens, "usage.completion_tokens")
    if step.policy is not None and step.policy is not _last_policy[0]:
        check_policy(step.policy)
        _last_policy[0] = step.policy
    if step.version_spans:
        _check_spans(step.version_spans)
    check_seconds(step.created_at, "created_at")
    check_seconds(step.latency_ms, "latency_ms")
    for name in _STEP_OBJECTS:
        value = getattr(step, name)
        if value or value.__class__ is not dict:
            if not isinstance(value, dict):
                raise wrong_type(value, "a dict", name)
            plain_json(value, name)
    if not isinstance(step.rewards, dict):
        raise wrong_type(step.rewards, "a dict", "rewards")
    for name in step.rewards:
        check_name(name, "rewards")
    if step.sampling is not None:
        check_sampling(step.sampling)
    check_spoken(step)


def check_spoken(step: Step) -> None:
    """Types of a step's messages and tools, but for what is in them."""
    if step.prompt_messages is not None:
        _check_kind(step.prompt_messages, (list, tuple), "a list of Message", "prompt_messages")
        if step.prompt_messages and set(map(type, step.prompt_messages)) != {Message}:
            wrong = next(number for number, one in enumerate(step.prompt_messages) if one.__class__ is not Message)
            raise wrong_type(step.prompt_messages[wrong], "a Message", f"prompt_messages[{wrong}]")
    if step.response_message is not None and step.response_message.__class__ is not Message:
        raise wrong_type(step.response_message, "a Message", "response_message")
    if step.tools is not None:
        _check_kind(step.tools, (list, tuple), "a list of dicts", "tools")


def check_message(message: Message, spoken: bytes) -> None:
    """Types of a message whose JSON is `spoken`; lists may stand in the place of tuples."""
    if _is_plain(message):
        return
    if exact_json.has_escapes(spoken):
        said = exact_json.decode(spoken, Message)
    else:
        said = _message.decode(spoken)
    if said == message:
        return
    # What is no JSON text, such as bytes, is written as one; a list for a tuple and an odd character are no harm.
    texts = [message.role, message.reasoning, message.tool_call_id, message.name]
    if isinstance(message.content, (list, tuple)):
        for part in message.content:
            _check_kind(part, (TextPart, MediaPart), "a TextPart or MediaPart", "messages.content")
            texts += [getattr(part, name) for name in part.__struct_fields__]
    else:
        texts.append(message.content)
    for call in message.tool_calls:
        _check_kind(call, ToolCall, "a ToolCall", "messages.tool_calls")
        _check_kind(call.function, FunctionCall, "a FunctionCall", "messages.tool_calls.function")
        texts += [call.id, call.type, call.function.name, call.function.arguments]
    for text in texts:
        _check_kind(text, str, "a text", "messages")


def _is_plain(message: Any) -> bool:
    """Whether everything in it is of its type itself, as in nearly every message: text, and calls of functions."""
    if message.role not in _ROLES or message.role.__class__ is not str or message.tool_calls.__class__ is not tuple:
        return False
    for text in (message.content, message.reasoning, message.tool_call_id, message.name):
        if text is not None and text.__class__ is not str:
            return False
    for call in message.tool_calls:
        if call.__class__ is not ToolCall or call.function.__class__ is not FunctionCall or call.type != "function":
            return False
        for text in (call.id, call.type, call.function.name, call.function.arguments):
            if text.__class__ is not str:
                return False
    return True


def _check_spans(spans: Sequence[VersionSpan]) -> None:
    _check_kind(spans, (list, tuple), "a tuple of VersionSpan", "version_spans")
    for number, span in enumerate(spans):
        if not isinstance(span, VersionSpan):
            raise wrong_type(span, "a VersionSpan", f"version_spans[{number}]")
        check_integer(span.start, f"version_spans[{number}].start")
        check_integer(span.version, f"version_spans[{number}].version", highest=MAX_INTEGER)


def check_exchange(kept: Exchange) -> bytes:
    """Numbers, depths and types of an exchange without its messages, tools and choices; returns its canonical JSON."""
    check_integer(kept.retry_count, "retry_count")
    check_policy(kept.policy)
    for name in ("created_at", "latency_ms"):
        check_seconds(getattr(kept, name), name)
    plain_json(kept.error, "error")
    check_names(kept, ("model", "requested_model", "agent", "channel", "dialect", "body_digest"))
    check_sampling(kept.sampling)
    with storable():
        return _encode_checked(kept, Exchange)


def checked_trajectory(new: NewTrajectory) -> NewTrajectory:
    """The settings of a trajectory as every store holds them, with their numbers, depths and types checked."""
    said = {name: as_number(getattr(new, name)) for name in _TRAJECTORY_NUMBERS}
    new = msgspec.structs.replace(new, **said)
    check_integer(new.group_size, "group_size", lowest=1)
    check_integer(new.rollout_index, "rollout_index")
    check_integer(new.attempt, "attempt")
    check_names(new, ("agent", "channel", "user"))
    if new.user == "":
        raise InvalidRequestError("user is empty", path="user", hint="Leave it out where it is nobody's")
    check_seconds(new.priority, "priority")
    check_seconds(new.group_timeout, "group_timeout")
    if isinstance(new.group_timeout, (int, float)) and new.group_timeout <= 0:
        raise InvalidRequestError("group_timeout must be over 0 seconds", path="group_timeout")
    new.task, new.metadata = plain_json(new.task, "task"), plain_json(new.metadata, "metadata")
    with storable():
        _encode_checked(new, NewTrajectory)
    of_group = next((each for each in ("group_size", "group_timeout", "group_failures") if getattr(new, each)), None)
    if new.group_id is None and of_group is not None:
        raise InvalidRequestError(
            f"{of_group} without a group", path=of_group, hint="Set group_id, which names the group"
        )
    new.priority = float(new.priority)
    return new


def check_reward_record(reward: Reward, path: str) -> None:
    """Value, time, depth and types of a reward."""
    if not is_finite(reward.value):
        raise InvalidRequestError("a reward must be a finite number", path=f"{path}.value", hint="Leave it out instead")
    check_seconds(reward.created_at, f"{path}.created_at")
    check_depth(reward.details, f"{path}.details")
    check_names(reward, ("name", "source"), f"{path}.")
    with storable(f"{path}."):
        _encode_checked(reward, Reward)


def check_sampling(sampling: Sampling | None) -> None:
    """Types and numbers of how a step or an exchange is sampled, as far as a look at its JSON would not tell."""
    if sampling is _last_sampling[0]:
        return
    if not isinstance(sampling, Sampling):
        raise wrong_type(sampling, "a Sampling", "sampling")
    for name in _SAMPLING_NUMBERS:
        check_integer(getattr(sampling, name), f"sampling.{name}", lowest=-MAX_INTEGER - 1, highest=MAX_INTEGER)
    for name in _SAMPLING_FLOATS:
        check_seconds(getattr(sampling, name), f"sampling.{name}")
    for name in _SAMPLING_JSON:
        plain_json(getattr(sampling, name), f"sampling.{name}")
    for number, text in enumerate(sampling.stop):
        _check_kind(text, str, "a text", f"sampling.stop[{number}]")
    for number, token in enumerate(sampling.stop_token_ids):
        check_integer(token, f"sampling.stop_token_ids[{number}]", highest=MAX_INTEGER)
    _last_sampling[0] = sampling
