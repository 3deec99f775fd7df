"""What policies make of rows: the rules of a policy as columns of one statement."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from sqlalchemy import Select, and_, case, exists, or_, select

from agentworld.pool import schema
from agentworld.pool.decision_rules import (
    SUBJECT_OF,
    Compiled,
    Made,
    Numbered,
    Target,
    compile_policy,
    decide_by,
)
from agentworld.pool.exact_text import stored_json
from agentworld.pool.sql.connections import Reader, Row
from agentworld.pool.sql.lookups import among_integers, among_texts
from agentworld.pool.sql.statements import Statement, compiled, json_list, sql
from agentworld.pool.sql.where import condition
from agentworld.records import CurationPolicy, exact_json

_s, _t, _c, _d = schema.steps, schema.trajectories, schema.curation_policies, schema.decisions
TABLES: dict[Target, Any] = {"step": _s, "trajectory": _t}
_IN_FORCE = sql(select(_c).where(_c.c.ended_at.is_(None)).order_by(_c.c.channel))
_IN_FORCE_FOR = sql(select(_c).where(among_texts(_c.c.channel, "names"), _c.c.ended_at.is_(None)))


def target_columns(target: Target) -> list[Any]:
    """What is read of a target before anything is decided of it."""
    table = TABLES[target]
    named = _s.c.step_id if target == "step" else _t.c.trajectory_id
    return [
        table.c.pk,
        named.label("id"),
        _t.c.pk.label("trajectory"),
        _t.c.trajectory_id.label("trajectory_id"),
        _t.c.channel.label("channel"),
        table.c.excluded_reason,
        table.c.labels,
    ]


def targets_from(target: Target) -> Any:
    """The table of targets, joined with that of their trajectories."""
    return _s.join(_t, _s.c.trajectory == _t.c.pk) if target == "step" else _t


def looking(policy: Compiled, target: Target, trajectories: Any) -> Statement:
    """For the targets of trajectories that `trajectories` is a condition on: `target_columns`, and for each rule rN,
    whether it holds.
    """
    return compiled(_looked_at(policy, target, trajectories).order_by(TABLES[target].c.pk))


def _looked_at(policy: Compiled, target: Target, trajectories: Any, *more: Any) -> Select[Any]:
    holds = [
        case((condition(one.rule.when, SUBJECT_OF[target]), 1), else_=0).label(f"r{one.number}")
        for one in policy.of(target)
    ]
    found = select(*target_columns(target), *holds, *more).select_from(targets_from(target)).where(trajectories)
    return found.where(_s.c.channel == _t.c.channel) if target == "step" else found


@functools.lru_cache(maxsize=64)
def judging(policy: Compiled, target: Target, few: bool = False) -> Statement:
    """`looking` at the trajectories whose keys are the parameter `rows`; `few`: at those of their steps whose keys are
    the parameter `steps`. Of steps, those alone that a rule holds for, or that were decided before: a trajectory may
    have thousands of which nothing is to be said.
    """
    among = among_integers(_t.c.pk, "rows")
    if target == "trajectory":
        return looking(policy, target, among)
    if few:
        among = and_(among, among_integers(_s.c.pk, "steps"))
    decided = exists().where(_d.c.subject == "step", _d.c.row_pk == _s.c.pk, _d.c.by == "policy").correlate(_s)
    found = _looked_at(policy, target, among, decided.label("decided")).subquery()
    wanted = or_(found.c.decided, *(found.c[f"r{one.number}"] == 1 for one in policy.of(target)))
    return compiled(select(found).where(wanted).order_by(found.c.pk))


def holding(row: Row) -> Callable[[Numbered], bool]:
    """Whether a rule holds for a row of `looking`."""
    return lambda one: bool(row[f"r{one.number}"])


def made_by(policy: Compiled, target: Target, row: Row) -> Made:
    """What the policy makes of a row of `looking`. Targets of which the same rules hold get the same object."""
    return _made(policy, target, tuple(bool(row[f"r{one.number}"]) for one in policy.of(target)))


@functools.lru_cache(maxsize=4096)
def _made(policy: Compiled, target: Target, holds: tuple[bool, ...]) -> Made:
    of = {one.number: held for one, held in zip(policy.of(target), holds, strict=True)}
    return decide_by(policy, target, lambda one: of[one.number])


def policies_in_force(reader: Reader, channels: Iterable[str] | None = None) -> dict[str, Compiled]:
    """By channel: of all, or of those that are named, so that nothing else is read under the lock."""
    if channels is None:
        rows = reader.execute(_IN_FORCE, {})
    else:
        rows = reader.execute(_IN_FORCE_FOR, {"names": json_list(list(channels))})
    return {row["channel"]: compiled_from(row) for row in rows}


def policy_from(row: Row) -> CurationPolicy:
    """The policy that a row holds."""
    return exact_json.decode(row["policy"].encode(), CurationPolicy)


def compiled_from(row: Row) -> Compiled:
    """The rules of the policy that a row holds."""
    policy = policy_from(row)
    return compile_policy(policy.rules, policy.default)


def stored_policy(policy: CurationPolicy) -> str:
    """A policy as its row holds it."""
    return stored_json(policy).decode()
