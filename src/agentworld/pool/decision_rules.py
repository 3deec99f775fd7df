"""What policies and people decide, and what becomes of a target's record by it; the same in every store.

A target is a trajectory that has ended, or one of its steps in its channel. What keeps it back is a reason among those
of its `excluded_reason`, marked by how it begins: `rule: ` (a policy's exclude), `review: ` (kept back until somebody
has looked), `manual: ` (a person's exclude). Tags and a weight are labels, `tag.NAME` and `weight`. All of that is
taken away again once nothing decides it any more, and nothing else of the record is touched.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from agentworld.errors import InvalidRequestError, QueryError
from agentworld.pool.arguments import listed
from agentworld.pool.bounds import check_integer, check_name, wrong_type
from agentworld.pool.rules import joined_reasons
from agentworld.query import Rule, Subject, conditions, parse_rules
from agentworld.query.rules import TAG, WEIGHT
from agentworld.records import (
    CurationPolicy,
    CurationPreview,
    Decision,
    RuleOutcome,
    Verdict,
    check_id,
    digest,
    exact_json,
)

Target = Literal["step", "trajectory"]
SUBJECT_OF: dict[Target, Subject] = {"step": "steps", "trajectory": "trajectories"}
NO_RULE = "no rule holds"
MAX_DECISIONS = 300  # in one call, which is one transaction that others wait for
MAX_CONDITIONS = 2000  # in one policy
MAX_REASON = 1000
MAX_SAMPLES = 1000  # ids of each rule in a preview
MAX_WEIGHT = 1e300  # of several rules together, as weights are finite
_JOINT = "; "
_VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


class Made(NamedTuple):
    """What a policy makes of one target: nothing where `verdict` is None and there are no labels."""

    verdict: Verdict | None = None
    reason: str | None = None
    rule: int | None = None
    labels: Mapping[str, Any] = {}
    worth: float | None = None  # of a review; None where that is not known, which keeps what it was

    def __bool__(self) -> bool:
        """Whether there is anything to keep."""
        return self.verdict is not None or bool(self.labels)


NOTHING = Made()


class Numbered(NamedTuple):
    """A rule and its number in the policy, from 1."""

    number: int
    rule: Rule


class Compiled(NamedTuple):
    """A policy's rules about trajectories and about steps."""

    version: str
    default: Verdict
    trajectories: tuple[Numbered, ...]
    steps: tuple[Numbered, ...]

    def of(self, target: Target) -> tuple[Numbered, ...]:
        """The rules about such targets."""
        return self.steps if target == "step" else self.trajectories


def check_policy(policy: object) -> CurationPolicy:
    """The policy with its rules read; errors name what cannot be."""
    if not isinstance(policy, CurationPolicy):
        raise wrong_type(policy, "a CurationPolicy", "policy")
    check_name(policy.channel, "channel")
    check_name(policy.name, "name")
    if policy.default not in _VERDICTS:
        raise InvalidRequestError(
            f"{policy.default!r} is no verdict", path="default", hint=f"Known: {', '.join(_VERDICTS)}"
        )
    policy = msgspec.structs.replace(policy, rules=tuple(listed(policy.rules, "rule", "rules")))
    compile_policy(policy.rules, policy.default)
    return policy


@functools.lru_cache(maxsize=64)
def compile_policy(rules: tuple[str, ...], default: Verdict) -> Compiled:
    """The rules read; QueryError names the one that cannot be."""
    read = [Numbered(number, rule) for number, rule in enumerate(parse_rules(rules), 1)]
    count = sum(len(conditions(one.rule.when)) for one in read)
    if count > MAX_CONDITIONS:
        raise QueryError(f"the policy has {count} conditions, at most {MAX_CONDITIONS} are taken", path="rules")
    version = digest(exact_json.encode([list(rules), default])).hex()[:16]
    by_subject = {name: tuple(one for one in read if one.rule.subject == name) for name in ("trajectories", "steps")}
    return Compiled(version, default, by_subject["trajectories"], by_subject["steps"])


def decide_by(policy: Compiled, target: Target, holds: Callable[[Numbered], bool]) -> Made:
    """What the policy makes of a target; `holds` says whether a rule's condition does."""
    labels: dict[str, Any] = {}
    for one in policy.of(target):
        if not holds(one):
            continue
        rule = one.rule
        match rule.action:
            case "tag":
                labels[TAG + rule.text] = True
            case "weight":
                labels[WEIGHT] = min(labels.get(WEIGHT, 1.0) * rule.number, MAX_WEIGHT)
            case "ready" | "exclude" | "review" as verdict:
                return Made(verdict, rule.text or None, one.number, labels, rule.number)
    if target == "step" or policy.default == "ready":
        return Made(labels=labels)  # Steps go with their trajectory.
    return Made(policy.default, NO_RULE, None, labels)


def said(manual: Decision | None, made: Made) -> str | None:
    """The reason that a target gets, None where nothing keeps it back. A person's verdict stands over a policy's."""
    verdict, reason = (manual.verdict, manual.reason) if manual is not None else (made.verdict, made.reason)
    if verdict not in ("exclude", "review"):
        return None
    mark = "review" if verdict == "review" else "manual" if manual is not None else "rule"
    # One reason must stay one among those that are joined.
    return f"{mark}: {reason or 'no reason given'}".replace(_JOINT, ", ")


def exchanged(reasons: str | None, old: str | None, new: str | None) -> str | None:
    """A target's reasons with `new` in the place of `old`."""
    kept = [one for one in (reasons.split(_JOINT) if reasons else ()) if one != old]
    return joined_reasons([*kept, new] if new is not None else kept)


def relabelled(labels: Mapping[str, Any], old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """A target's labels with those that a policy sets now, and without those that it set before."""
    return {**{name: value for name, value in labels.items() if name not in old or old[name] != value}, **new}


def check_decisions(decisions: Sequence[Decision]) -> list[tuple[Target, str, Decision]]:
    """Manual decisions, each with its target; InvalidRequestError names the first that is malformed."""
    sent = listed(decisions, "Decision", "decisions")
    if len(sent) > MAX_DECISIONS:
        raise InvalidRequestError(f"{len(sent)} decisions in one call", hint=f"Send at most {MAX_DECISIONS} at once")
    return [_checked(one, f"decisions[{number}]") for number, one in enumerate(sent)]


def _checked(one: object, path: str) -> tuple[Target, str, Decision]:
    if not isinstance(one, Decision):
        raise wrong_type(one, "a Decision", path)
    if one.by != "manual" or one.rule is not None or one.policy is not None or one.tags or one.weight is not None:
        raise InvalidRequestError(
            "only a policy's decisions have a rule, tags or a weight", path=path, hint="Send verdict and reason"
        )
    if one.verdict not in (None, *_VERDICTS):
        raise InvalidRequestError(
            f"{one.verdict!r} is no verdict", path=f"{path}.verdict", hint=f"Known: {', '.join(_VERDICTS)}, or null"
        )
    if one.step_id is None and one.trajectory_id is None:
        raise InvalidRequestError("a decision is on a trajectory or on a step", path=path, hint="Set one of the ids")
    check_reason(one.reason, f"{path}.reason")
    if one.verdict in ("exclude", "review") and not one.reason:
        raise InvalidRequestError(f"{one.verdict} needs a reason", path=f"{path}.reason")
    check_name(one.source, f"{path}.source")
    if one.step_id is not None:
        return "step", check_id(one.step_id, f"{path}.step_id"), one
    return "trajectory", check_id(one.trajectory_id or "", f"{path}.trajectory_id"), one


def check_reason(reason: object, path: str) -> None:
    """InvalidRequestError where it is neither None nor one line of up to MAX_REASON characters."""
    if reason is None:
        return
    if not isinstance(reason, str):
        raise wrong_type(reason, "a text", path)
    if len(reason) > MAX_REASON or not reason.isprintable():
        raise InvalidRequestError(f"a reason is one line of up to {MAX_REASON} characters", path=path)


def check_one_subject(trajectory_id: object, step_id: object) -> tuple[Target, str]:
    """The one target that is asked for."""
    if (trajectory_id is None) == (step_id is None):
        raise InvalidRequestError("either trajectory_id or step_id is needed", path="step_id")
    if step_id is not None:
        return "step", check_id(step_id, "step_id")  # type: ignore[arg-type]  # Checks that too.
    return "trajectory", check_id(trajectory_id, "trajectory_id")  # type: ignore[arg-type]  # As above.


def tags_of(labels: Mapping[str, Any]) -> tuple[str, ...]:
    """The tags among what a policy set."""
    return tuple(sorted(name.removeprefix(TAG) for name in labels if name.startswith(TAG)))


def outcomes(policy: Compiled, target: Target, holds: Callable[[Numbered], bool]) -> list[RuleOutcome]:
    """Each rule on one target, and which of them decided."""
    found: list[RuleOutcome] = []
    ended = False
    for one in policy.of(target):
        outcome = None if ended else holds(one)
        decided = bool(outcome) and one.rule.decides
        found.append(
            RuleOutcome(
                number=one.number,
                rule=one.rule.source,
                subject=SUBJECT_OF[target],
                holds=outcome,
                decided=decided,
            )
        )
        ended = ended or decided
    return found


def check_preview(samples: int, limit: int | None) -> None:
    """InvalidRequestError where so many ids of each rule, or so many trajectories, cannot be asked for."""
    check_integer(samples, "samples", highest=MAX_SAMPLES)
    check_integer(limit, "limit")


class Preview:
    """Counts what a policy would decide, while its targets are looked at."""

    def __init__(self, policy: Compiled, samples: int) -> None:
        self._version = policy.version
        self._samples = samples
        self._counts = {"trajectory": 0, "step": 0}
        self._by_rule: dict[int, int] = {}
        self._found: dict[int, list[str]] = {}
        self._changes: dict[str, int] = {}
        self._policy = policy

    def add(self, target: Target, target_id: str, holds: Callable[[Numbered], bool]) -> None:
        """One target."""
        self._counts[target] += 1
        found = outcomes(self._policy, target, holds)
        numbers = [one.number for one in found if one.holds]
        if target == "trajectory" and not any(one.decided for one in found):
            numbers.append(0)
        for number in numbers:
            self._by_rule[number] = self._by_rule.get(number, 0) + 1
            if len(ids := self._found.setdefault(number, [])) < self._samples:
                ids.append(target_id)

    def stands(self, now: str, then: str) -> None:
        """The readiness of a trajectory now, and as it would be."""
        if now != then:
            name = f"{now} -> {then}"
            self._changes[name] = self._changes.get(name, 0) + 1

    def result(self, whole: bool) -> CurationPreview:
        """What was counted."""
        return CurationPreview(
            version=self._version,
            trajectories=self._counts["trajectory"],
            steps=self._counts["step"],
            by_rule=dict(sorted(self._by_rule.items())),
            changes=dict(sorted(self._changes.items())),
            samples=dict(sorted(self._found.items())),
            whole=whole,
        )
