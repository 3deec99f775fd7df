"""Checks that are there to gate: whether a trajectory is whole, rewarded, fresh and exact."""

from __future__ import annotations

from collections.abc import Iterator

from agentworld.curation.checks.finding import Found
from agentworld.curation.checks.private_rules import excerpt
from agentworld.curation.checks.reading import Run, Turn
from agentworld.curation.checks.registry import check
from agentworld.curation.checks.settings import CheckContext
from agentworld.records import Step

QUARANTINED = "quarantined:"


@check(
    "incomplete",
    scope="trajectory",
    gates=True,
    values="`open`, `failed`, `truncated`, `abandoned`, `empty`, `unanswered`",
    says="The trajectory is not complete: it did not end as finished, holds no reply (`empty`), or its last reply "
    "calls tools whose results never came (`unanswered`).",
    fails="Takes agents that end with a call by design (a `submit` tool) for unanswered. Overlooks that an agent said "
    "it was done in the middle of its work.",
)
def incomplete(run: Run, context: CheckContext) -> Iterator[Found]:
    status = run.trajectory.status
    if status != "finished":
        yield Found(status, {"status": status})
        return
    last = run.last
    if last is None:
        if all(turn.step.response_ids is None for turn in run.kept):
            yield Found("empty", {"steps": len(run.turns)})
    elif last.reply is not None and last.reply.tool_calls:
        name = last.reply.tool_calls[0].function.name
        yield Found("unanswered", {"step": last.step.step_id, "message": "reply", "excerpt": excerpt(name)})


@check(
    "unrewarded",
    scope="trajectory",
    gates=True,
    says="Neither the trajectory nor one of its steps has a primary reward.",
    fails="Knows nothing of rewards that are still to come. Rewards under other names than `reward` do not count.",
)
def unrewarded(run: Run, context: CheckContext) -> Iterator[Found]:
    if run.trajectory.reward is None and all(turn.step.reward is None for turn in run.turns):
        yield Found(True, {"rewards": sorted(run.trajectory.rewards)[:8]})


@check(
    "stale",
    scope="trajectory",
    gates=True,
    values="how many versions too old its oldest step is (its whole lag), or `other_run`",
    says="A step was sampled more than `max_staleness` versions before the policy that speaks now, or by another run "
    "of that model. It says nothing without a limit or a current policy.",
    fails="Steps without a policy, and those of other models, are not judged. It holds for the moment it was run at: "
    "`staleness` in `where` is of the moment of the lease.",
)
def stale(run: Run, context: CheckContext) -> Iterator[Found]:
    current, most = context.current, context.settings.max_staleness
    if current is None or most is None:
        return
    worst: tuple[int, Step] | None = None
    for turn in run.kept:
        policy = turn.step.policy
        if policy is None or policy.model != current.model:
            continue
        if policy.run != current.run:
            yield Found("other_run", {"step": turn.step.step_id, "run": policy.run, "current": current.run})
            return
        lag = current.version - min([policy.version, *(span.version for span in turn.step.version_spans)])
        if lag > most and (worst is None or lag > worst[0]):
            worst = lag, turn.step
    if worst is not None:
        yield Found(worst[0], {"step": worst[1].step_id, "current": current.version, "max_staleness": most})


@check(
    "truncated",
    scope="step",
    gates=True,
    says="The reply was cut at its limit of tokens, before the model ended it.",
    fails="Overlooks replies that a stop string or an agent cut, and engines that report another finish reason.",
)
def truncated(turn: Turn, run: Run, context: CheckContext) -> Iterator[Found]:
    if turn.step.finish_reason in ("length", "max_tokens"):
        yield Found(True, {"step": turn.step.step_id, "message": "reply", "tokens": turn.step.response_length})


@check(
    "quarantined",
    scope="step",
    gates=True,
    says="Counts of ids, log-probabilities, mask and usage contradict each other; the pool has excluded the step.",
    fails="Overlooks ids that are wrong and still agree in number.",
)
def quarantined(turn: Turn, run: Run, context: CheckContext) -> Iterator[Found]:
    reason = turn.step.excluded_reason
    if reason is not None and any(part.startswith(QUARANTINED) for part in reason.split("; ")):
        yield Found(True, {"step": turn.step.step_id, "reason": excerpt(reason)})
