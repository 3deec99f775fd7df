"""What a step must be before it is stored: checked, its arrays packed, its faults named.

Nothing here touches a store. A record that cannot be stored at all raises InvalidRequestError (the stores turn that
into a rejection of this one step); a record that contradicts itself is stored, quarantined with the counts.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from agentworld.errors import InvalidRequestError
from agentworld.forest import TokenArray
from agentworld.pool.bounds import NOT_STORABLE, check_spoken, check_step, is_finite, refusal
from agentworld.pool.lacks import lacks
from agentworld.pool.plain_values import as_number, plain_json
from agentworld.pool.rules import of_caller
from agentworld.pool.step_arrays import ids_taken, logprobs_taken, mask_taken
from agentworld.pool.step_text import check_tools, checked_text
from agentworld.pool.usual_steps import is_usual, remember, usual_text
from agentworld.records import Exchange, Policy, Step, check_id

INCLUDABLE = ("tokens", "messages", "logprobs")
ABORTED = frozenset({"abort", "aborted"})
_REFUSALS = (InvalidRequestError, *NOT_STORABLE)


class Prepared(msgspec.Struct, frozen=True, gc=False):
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


def prepare(step: object) -> Prepared:
    """Check one step; InvalidRequestError names the field that cannot be stored, whatever is in the step's place.

    Arrays of numpy may stand in the place of lists; they are not copied, so they must stay as they are until the step
    is stored. Numbers of numpy may stand in the place of numbers.
    """
    try:
        if not isinstance(step, Step):
            raise InvalidRequestError(f"a step must be a Step, not {type(step).__name__}")
        try:
            return _prepared(step)
        except _REFUSALS:
            return _prepared(_with_plain_numbers(step))
    except NOT_STORABLE as error:
        raise refusal(error) from None


def _with_plain_numbers(step: Step) -> Step:
    """The step with numbers of Python in the place of scalars of numpy; the step itself where it has none."""
    changes: dict[str, Any] = {}
    for name in step.__struct_fields__:
        value = getattr(step, name)
        if (plain := as_number(value)) is not value:
            changes[name] = plain
    if isinstance(step.rewards, dict):
        changes["rewards"] = {name: as_number(value) for name, value in step.rewards.items()}
    if isinstance(step.policy, Policy):
        changes["policy"] = msgspec.structs.replace(step.policy, version=as_number(step.policy.version))
    for name in ("labels", "metadata", "tools"):
        if getattr(step, name):
            changes[name] = plain_json(getattr(step, name), name)
    return msgspec.structs.replace(step, **changes)


def _with_floats(step: Step) -> Step:
    """The step with its times as they are stored: whole numbers may have more bits than an engine's whole numbers."""
    created, took = step.created_at, step.latency_ms
    if int not in (type(created), type(took)):
        return step
    return msgspec.structs.replace(step, created_at=float(created), latency_ms=None if took is None else float(took))


def _prepared(step: Step) -> Prepared:
    usual = is_usual(step)
    if usual:
        check_spoken(step)
    else:
        check_step(step)
    check_id(step.step_id, "step_id")
    check_id(step.trajectory_id, "trajectory_id")
    if step.group_id is not None:
        check_id(step.group_id, "group_id")
    if step.exchange_id is not None:
        check_id(step.exchange_id, "exchange_id")
    if step.parent_step_id is not None:
        check_id(step.parent_step_id, "parent_step_id")
    if step.supersedes is not None:
        check_id(step.supersedes, "supersedes")
        if step.supersedes == step.step_id:
            raise InvalidRequestError("a step cannot supersede itself", path="supersedes")
    rewards: dict[str, float] = {}
    if usual:
        rest = usual_text(step)
    else:
        rewards = _rewards(step)
        rest = checked_text(step)
        remember(step)
        step = _with_floats(step)
    if step.tools is not None:
        check_tools(step.tools)
    prompt = ids_taken(step.prompt_ids, "prompt_ids")
    response = ids_taken(step.response_ids, "response_ids")
    mask = None if step.response_mask is None else mask_taken(step.response_mask)
    logprobs = logprobs_taken(step.response_logprobs)
    reasons = [of_caller(step.excluded_reason)] if step.excluded_reason else []
    faults = _faults(step, prompt, response, mask, logprobs)
    if step.version_spans:
        faults += _span_faults(step, response)
    if faults:
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


def choices_of(exchange: Exchange) -> list[Step]:
    """The exchange's choices with what they leave open filled in from the exchange; the same where there is nothing."""
    return [choice if _is_filled(choice, exchange) else _filled(choice, exchange) for choice in exchange.choices]


def _is_filled(choice: Step, exchange: Exchange) -> bool:
    """Whether a choice is seen to say all that the exchange could, as the gateway's do."""
    return (
        choice.exchange_id is exchange.exchange_id
        and choice.trajectory_id is exchange.trajectory_id
        and choice.group_id is exchange.group_id
        and choice.channel is exchange.channel
        and choice.prompt_messages is not None
        and (choice.tools is not None or not exchange.tools)
        and (choice.agent is not None or exchange.agent is None)
        and choice.model is not None
        and choice.requested_model is not None
        and choice.policy is not None
        and choice.dialect is not None
        and choice.sampling is not None
        and choice.latency_ms is not None
        and choice.created_at.__class__ is float
        and choice.created_at != 0
    )


def _filled(choice: Step, exchange: Exchange) -> Step:
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
    return msgspec.structs.replace(choice, **changes)


def check_include(include: Sequence[str]) -> None:
    """InvalidRequestError where `include` names something else than tokens, messages and logprobs."""
    for name in include:
        if name not in INCLUDABLE:
            raise InvalidRequestError(
                f"include takes {', '.join(INCLUDABLE)}; not {name!r}", path="include", hint="Leave the name out"
            )


def _rewards(step: Step) -> dict[str, float]:
    if step.reward is None and not step.rewards:
        return {}
    rewards = dict(step.rewards)
    for name, value in rewards.items():
        if not is_finite(value):
            raise InvalidRequestError(f"reward {name!r} must be a finite number", path=f"rewards.{name}")
    if step.reward is not None:
        if not is_finite(step.reward):
            raise InvalidRequestError("reward must be a finite number", path="reward", hint="Leave it out instead")
        if rewards.setdefault("reward", step.reward) != step.reward:
            raise InvalidRequestError("reward and rewards.reward differ", path="reward", hint="Send one of them")
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
    usage, size = step.usage, len(response)
    if (
        (logprobs is None or len(logprobs) == size)
        and (mask is None or len(mask) == size)
        and (step.prompt_length is None and step.response_length is None)
        and (usage is None or (usage.completion_tokens == size and usage.prompt_tokens == len(prompt)))
    ):
        return []
    faults = []
    for name, array in (("response_logprobs", logprobs), ("response_mask", mask)):
        if array is not None and len(array) != len(response):
            faults.append(f"{len(array)} {name} for {len(response)} response_ids")
    counted = [("prompt_length", step.prompt_length, prompt), ("response_length", step.response_length, response)]
    if usage is not None:
        counted.append(("usage.prompt_tokens", usage.prompt_tokens, prompt))
        counted.append(("usage.completion_tokens", usage.completion_tokens, response))
    for name, number, ids in counted:
        if number is not None and number != len(ids):
            faults.append(f"{name} is {number} but there are {len(ids)} ids")
    return faults


def _span_faults(step: Step, response: TokenArray | None) -> list[str]:
    """What is wrong with who is said to have sampled what: each span has tokens of its own, and together all of them.
    Starts are checked against the reply's ids, where there are some.
    """
    starts = [span.start for span in step.version_spans]
    faults = []
    if starts[0] != 0 or any(start <= before for before, start in itertools.pairwise(starts)):
        faults.append(f"version_spans start at {starts[:8]}, which does not ascend from 0")
    elif response is not None and starts[-1] >= max(len(response), 1):
        faults.append(f"version_spans start at {starts[-1]} in {len(response)} response_ids")
    first = step.version_spans[0].version
    if step.policy is not None and step.policy.version != first:
        faults.append(f"policy.version is {step.policy.version} but version_spans begin with {first}")
    return faults
