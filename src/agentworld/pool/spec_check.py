"""Whether a pool can give a consumer what it asks for, before it leases; it hands nothing out.

The newest units are explained one by one, by the rules that leases go by, until enough of them fit or the budget is
spent: LOOKED_UNITS units, LOOKED_STEPS steps or LOOKED_SECONDS seconds. So it costs the same in any pool, and says
where it stopped.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator

from agentworld.pool.explained import Seen
from agentworld.pool.explaining import Explainer
from agentworld.pool.finding_texts import EMPTY, NO_POLICY, finding, share
from agentworld.pool.lease_rules import SPACE
from agentworld.pool.protocol import Pool
from agentworld.pool.results import SpecFinding, SpecReport, UnitExplanation
from agentworld.pool.rules import staleness
from agentworld.pool.signal_rules import standing_comparisons
from agentworld.records import BatchSpec, Feedback, Policy
from agentworld.records.methods import METHODS

LOOKED_UNITS = 200
LOOKED_STEPS = 10_000
LOOKED_SECONDS = 5.0
LOOKED_COMPARISONS = 1_000
_PAGE = 100


def check(
    pool: Pool,
    explainer: Explainer,
    consumer: str,
    spec: BatchSpec,
    *,
    units: int = LOOKED_UNITS,
    steps: int = LOOKED_STEPS,
    clock: Callable[[], float] = time.monotonic,
) -> SpecReport:
    """The report on a resolved spec; `explainer`: of the same consumer and spec."""
    wanted = spec.min_size or spec.count
    until = clock() + LOOKED_SECONDS
    kept: dict[tuple[str, str | None], list[UnitExplanation]] = {}
    fitting = looked_at = 0
    stopped = None
    known: set[str] = set()
    for explain, long in _units(pool, explainer, spec):
        if looked_at >= units:
            stopped = f"only the newest {units} units were looked at"
        elif explainer.seen.steps + long >= steps:
            stopped = f"only the newest {looked_at} units were looked at, as {steps:,} steps are the most"
        elif clock() > until:
            stopped = f"only the newest {looked_at} units were looked at, as {LOOKED_SECONDS:g} s had passed"
        if stopped is not None:
            break
        found = explain()
        if found.key in known:
            continue
        known.add(found.key)
        looked_at += 1
        if found.served:
            fitting += 1
            if fitting >= spec.count:
                stopped = "enough units fit"
                break
        else:
            reason = found.cause if found.cause is not None and found.need is not None else found.reason
            kept.setdefault((reason, found.need), []).append(found)
    findings = [_told(explainer, consumer, spec, found, looked_at) for found in kept.values()]
    if not looked_at:
        others = sorted(name for name, held in pool.stats().channels.items() if held.trajectories)
        findings.append(finding(EMPTY, consumer, spec, Seen(), [], 0, others=", ".join(others) or "none"))
    if stopped is None and spec.unit == "pair" and len(_comparisons(pool)) == LOOKED_COMPARISONS:
        stopped = f"only the first {LOOKED_COMPARISONS:,} comparisons were looked at"
    satisfied: bool | None = fitting >= wanted
    if not satisfied and stopped is not None:  # The others may fit.
        satisfied = None
    return SpecReport(
        consumer=consumer,
        method=spec.method,
        unit=spec.unit or "step",
        channel=spec.channel,
        satisfied=satisfied,
        wanted=wanted,
        fitting=fitting,
        looked_at=looked_at,
        findings=sorted(findings, key=lambda one: -one.units),
        notes=_notes(spec, explainer.seen),
        stopped=stopped,
        spec=spec,
    )


def _told(
    explainer: Explainer, consumer: str, spec: BatchSpec, found: list[UnitExplanation], looked_at: int
) -> SpecFinding:
    reason = found[0].cause if found[0].cause is not None and found[0].need is not None else found[0].reason
    return finding(reason, consumer, spec, explainer.seen, found, looked_at, behind=_freshest(explainer))


def _freshest(explainer: Explainer) -> str:
    """How many versions the freshest trajectory that was seen lies behind, in words."""
    current = explainer.policies
    if all(policy is None for policy in explainer.seen.policies):
        return NO_POLICY
    lags = [lag for policy in explainer.seen.policies if (lag := _lag(policy, current.get)) is not None]
    if not lags:
        return "none is of the run that speaks now"
    return f"the freshest is {min(lags)} version{'' if min(lags) == 1 else 's'} behind"


def _lag(policy: Policy | None, current: Callable[[str], Policy | None]) -> int | None:
    return None if policy is None else staleness(policy, current(policy.model))


def _units(pool: Pool, explainer: Explainer, spec: BatchSpec) -> Iterator[tuple[Callable[[], UnitExplanation], int]]:
    """What explains each unit, and how many steps it will read, as far as that is known."""
    for target, long in _targets(pool, spec):
        yield functools.partial(explainer.explain, target), long
    if spec.unit == "pair":  # Also those of members of groups, to whose ids their group answers.
        for one in standing_comparisons(_comparisons(pool)):
            yield functools.partial(explainer.explain_comparison, one), 0


def _comparisons(pool: Pool) -> list[Feedback]:
    """The first comparisons, as many as one look reads."""
    return pool.list_feedback(kind="comparison", limit=LOOKED_COMPARISONS).items


def _targets(pool: Pool, spec: BatchSpec) -> Iterator[tuple[str, int]]:
    """Ids that lead to the channel's units, each unit about once, the newest first; and how many steps are to be read,
    as far as that is known.
    """
    cursor = None
    if spec.unit == "step":
        while True:
            steps = pool.list_steps(channel=spec.channel, order="newest", cursor=cursor, limit=_PAGE)
            yield from ((step.step_id, 0) for step in steps.items)
            if (cursor := steps.next_cursor) is None:
                return
    grouped = spec.unit in ("group", "pair")
    told: set[str] = set()
    while True:
        page = pool.list_trajectories(channel=spec.channel, order="newest", cursor=cursor, limit=_PAGE)
        for trajectory in page.items:
            name = trajectory.group_id if grouped and trajectory.group_id is not None else trajectory.trajectory_id
            if name not in told:
                told.add(name)
                yield name, trajectory.step_count
        if (cursor := page.next_cursor) is None:
            return


def _notes(spec: BatchSpec, seen: Seen) -> list[str]:
    """What the method asks for that no single unit shows."""
    method = METHODS.get(spec.method)
    if method is None:
        return []
    notes = []
    if spec.unit == "group" and (spec.rollouts or 1) < method.rollouts:
        notes.append(
            f"{spec.method} compares the rollouts of a group: of fewer than {method.rollouts} nothing is learnt;"
            f" set rollouts to {method.rollouts} or more"
        )
    if method.freshness == "on_policy" and spec.max_staleness != 0:
        notes.append(
            f"{spec.method} has no correction for older policies: set max_staleness to 0, or take a method with a ratio"
        )
    if method.freshness == "bounded" and spec.max_staleness is None:
        notes.append(f"{spec.method} corrects for some versions of lag: set max_staleness to bound it")
    if method.spaces and not any(need.startswith(SPACE) for need in spec.require):
        unknown, processed, known = seen.spaces[None], seen.spaces["processed"], seen.spaces.total()
        if unknown:
            notes.append(
                f"{share(unknown, known, 'step')} {'does' if unknown == 1 else 'do'} not say in which space the"
                " log-probabilities are, which a ratio needs; send logprob_space with the steps"
            )
        if processed:
            notes.append(
                f"{share(processed, known, 'step')} {'has' if processed == 1 else 'have'} processed log-probabilities:"
                " a trainer can compute them where"
                " temperature alone was set; to be sure, require logprob_space.raw or logprob_space.temperature"
            )
        named = [space for space in seen.spaces if space is not None]
        if len(named) > 1:
            notes.append(f"log-probabilities are in several spaces: {', '.join(sorted(named))}; require one of them")
    return notes
