"""What the check of a spec says of each reason that keeps units: with counts, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from agentworld.pool.explained import Seen
from agentworld.pool.lease_rules import SPACE
from agentworld.pool.results import SpecFinding, UnitExplanation, UnitReason
from agentworld.records import BatchSpec, Unit

EMPTY: Literal["no_steps"] = "no_steps"
"""The reason where the channel has nothing at all."""
NO_POLICY = "none says which weights sampled it"
"""How old what is stale is, where no step names its policy."""

_NAMES: dict[Unit, tuple[str, str]] = {
    "step": ("step", "steps"),
    "trajectory": ("trajectory", "trajectories"),
    "group": ("group", "groups"),
    "pair": ("candidate", "candidates"),
}
# By reason: what is so, after "N of M units", and what to do.
_TEXTS: dict[UnitReason, tuple[str, str]] = {
    "leased": ("are leased to {consumer}", "Acknowledge or release its batches, or wait for their deadline"),
    "acknowledged": (
        "were acknowledged by {consumer}",
        "It has had them: collect new data, or ask as a consumer of another name, which sees everything",
    ),
    "dropped": (
        "were dropped for {consumer}, as too stale or all equal",
        "Collect with the policy that speaks, or ask as a consumer of another name with a higher max_staleness",
    ),
    "poisoned": (
        "were handed out {deliveries} without being acknowledged",
        "See why batches with them fail, then requeue them",
    ),
    "channel": (
        "have no step in the channel {channel!r}",
        "Name the channel that they are in",
    ),
    "no_group": (
        "are trajectories without a group",
        "Collect with group_id and group_size, or take a method on trajectories, such as reinforce",
    ),
    "no_pair": (
        "make no pair",
        "Give comparisons, or groups whose primary rewards differ by pair_margin or more",
    ),
    "no_steps": ("have no step to train on", "See `agentworld trajectories show {example}` for why"),
    "group_open": (
        "have not closed",
        "Wait for their rollouts to end, or collect with a group_timeout",
    ),
    "too_few": (
        "are groups with fewer than {rollouts} that fit",
        "Ask for fewer rollouts, or collect more of each task",
    ),
    "readiness": (
        "are open or excluded",
        "Complete them, or see with `agentworld curate explain {example}` what excluded them",
    ),
    "excluded": ("are excluded steps", "See `agentworld trajectories show` for why"),
    "masked": ("are served for the statistics of their groups alone", "Ask for groups"),
    "where": ("do not match {where}", "Ask with another where"),
    "stale": (
        "are staler than {max_staleness}; {behind}",
        "Collect with the policy that speaks, raise max_staleness, or have `agentworld run` wait: its max_staleness",
    ),
    "equal": (
        "have {skip_equal} equal in all rollouts",
        "Collect tasks of another difficulty, or leave skip_equal out",
    ),
    "waits": ("have nothing to train on", "See `agentworld pool explain {consumer} {example}`"),
}
# How those begin that are said of a single unit.
_OF_ONE: tuple[tuple[str, str], ...] = (
    ("are trajectories without", "is a trajectory without"),
    ("are groups with", "is a group with"),
    ("are excluded steps", "is an excluded step"),
    ("are served for the statistics of their groups", "is served for the statistics of its group"),
    ("are ", "is "),
    ("were ", "was "),
    ("have ", "has "),
    ("make ", "makes "),
    ("do not ", "does not "),
)
_SEVERAL = ("tokens", "logprobs", "messages", "step_reward", "logprob_space")
_NEEDS: dict[str, str] = {
    "tokens": "Serve the model with its tokenizer or an engine that reports ids; sft, dpo, kto and prm take texts with"
    ' require = ["messages"]',
    "logprobs": "Have the engine report log-probabilities, or take a method that needs none, such as reinforce",
    "messages": "Send prompt_messages and response_message with the steps",
    "reward": "Give rewards: `agentworld reward run`, POST /api/v1/rewards, or a checker in `agentworld run`",
    "step_reward": "Give rewards to steps: POST /api/v1/rewards with step_id",
    "annotation": "Add the array: POST /api/v1/annotations, or pool.add_annotations",
    "label": "Add the label: POST /api/v1/feedback, or a check of `agentworld curate run`",
    "logprob_space": "Have the engine report them in that space (logprob_space of its model), or require another",
}


def finding(
    reason: UnitReason,
    consumer: str,
    spec: BatchSpec,
    seen: Seen,
    found: Sequence[UnitExplanation],
    looked_at: int,
    *,
    behind: str = "",
    others: str = "",
) -> SpecFinding:
    """What is said of units that one reason keeps; none of them: of a channel without any."""
    if not found:
        return SpecFinding(
            reason=reason,
            units=0,
            message=f"there is nothing in the channel {spec.channel!r}",
            hint=f"Collect something, or name another channel; with trajectories: {others}",
            example="",
        )
    need, example = found[0].need, found[0].key
    count = share(len(found), looked_at, spec.unit or "step")
    if need is None:
        text, hint = _TEXTS[reason]
        said = {
            "consumer": consumer,
            "channel": spec.channel,
            "deliveries": times(spec.max_deliveries),
            "rollouts": counted((spec.rollouts or 1) if spec.unit == "group" else 2, "trajectory"),
            "where": spec.where,
            "max_staleness": spec.max_staleness,
            "behind": behind,
            "skip_equal": spec.skip_equal,
            "example": example,
        }
        if len(found) == 1:
            text = next((one + text.removeprefix(many) for many, one in _OF_ONE if text.startswith(many)), text)
        if reason == "stale" and behind == NO_POLICY:
            hint = "Send policy_version with the steps, publish policies, or leave max_staleness out"
        message, hint = f"{count} {text.format(**said)}", hint.format(**said)
    else:
        missing = ""
        if lack := seen.missing[need]:
            them = "them" if need.partition(".")[0] in _SEVERAL else "it"
            missing = f"; {share(lack, seen.steps, 'step')} {'lacks' if lack == 1 else 'lack'} {them}"
        message = f"{count} {'lacks' if len(found) == 1 else 'lack'} {_words(need)}{missing}"
        hint = _NEEDS[need.partition(".")[0]]
    return SpecFinding(reason=reason, need=need, units=len(found), message=message, hint=hint, example=example)


def counted(number: int, unit: Unit) -> str:
    """So many units: groups and single trajectories may both lead to a pair."""
    one, many = _NAMES[unit]
    return f"{number} {one if number == 1 else many}"


def share(number: int, total: int, unit: Unit) -> str:
    """So many of so many units: of one the only one."""
    return f"the only {_NAMES[unit][0]}" if number == total == 1 else f"{number} of {counted(total, unit)}"


def times(number: int) -> str:
    """How often."""
    return "once" if number == 1 else f"{number} times"


def _words(need: str) -> str:
    """A requirement as one says it."""
    kind, _, name = need.partition(".")
    if need.startswith(SPACE):
        return f"log-probabilities in the space {' or '.join(name.split('|'))}"
    plain = {"tokens": "ids", "logprobs": "log-probabilities", "reward": "a reward", "step_reward": "rewards of steps"}
    return plain.get(kind, f"the {kind} {name}" if name else kind)
