"""What a policy would decide, and why a target stands as it does; reads only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlalchemy import and_, func, select

from agentworld.errors import NotFoundError
from agentworld.pool import rules, schema
from agentworld.pool.decision_rules import (
    Compiled,
    Made,
    Target,
    exchanged,
    outcomes,
    said,
)
from agentworld.pool.exact_text import read_json
from agentworld.pool.group_rules import is_admitted
from agentworld.pool.sql.connections import Reader, Row
from agentworld.pool.sql.decision_reads import read_decisions
from agentworld.pool.sql.judging import holding, looking, made_by, policies_in_force
from agentworld.pool.sql.lookups import among_integers
from agentworld.pool.sql.statements import json_list, parameter, sql
from agentworld.records import RuleOutcome, Standing

AT_ONCE = 200  # trajectories that one read transaction looks at

_t, _s, _g, _d, _e = schema.trajectories, schema.steps, schema.groups, schema.decisions, schema.evaluations
_NEWEST = sql(
    select(_t.c.pk)
    .where(_t.c.channel == parameter("name"), _t.c.status != "open", _t.c.pk < parameter("below"))
    .order_by(_t.c.pk.desc())
    .limit(parameter("limit"))
)
_ENDED = sql(select(func.count()).where(_t.c.channel == parameter("name"), _t.c.status != "open"))
_BASE = sql(
    select(
        _t.c.pk,
        _t.c.status,
        _t.c.readiness,
        _t.c.reward,
        _t.c.excluded_reason,
        _g.c.failures,
        _g.c.state.label("group_state"),
        _d.c.by,
        _d.c.verdict,
        _d.c.reason,
        _d.c.said,
    )
    .select_from(
        _t.outerjoin(_g, _g.c.group_id == _t.c.group_id).outerjoin(
            _d, and_(_d.c.row_pk == _t.c.pk, _d.c.subject == "trajectory")
        )
    )
    .where(among_integers(_t.c.pk, "rows"))
    .order_by(_t.c.pk)
)
_ONE = {
    "trajectory": sql(
        select(_t.c.pk, _t.c.trajectory_id, _t.c.channel, _t.c.status, _t.c.readiness, _t.c.excluded_reason).where(
            _t.c.trajectory_id == parameter("id")
        )
    ),
    "step": sql(
        select(
            _s.c.pk,
            _t.c.pk.label("trajectory"),
            _t.c.trajectory_id,
            _t.c.channel,
            _t.c.status,
            _t.c.readiness,
            _t.c.excluded_reason,
            _s.c.excluded_reason.label("own_reason"),
        )
        .join_from(_s, _t, _s.c.trajectory == _t.c.pk)
        .where(_s.c.step_id == parameter("id"))
    ),
}
_FAILURES = sql(
    select(_e.c.evaluator, _e.c.error)
    .where(_e.c.target == parameter("kind"), _e.c.target_id == parameter("id"), _e.c.state == "failed")
    .order_by(_e.c.evaluator)
)


def count_ended(reader: Reader, channel: str) -> int:
    """Trajectories of a channel that have ended."""
    [row] = reader.execute(_ENDED, {"name": channel})
    return int(row[0])


def newest(reader: Reader, channel: str, below: int, limit: int) -> list[int]:
    """Keys of trajectories that have ended, under `below`, the newest first."""
    return [row["pk"] for row in reader.execute(_NEWEST, {"name": channel, "below": below, "limit": limit})]


def would_make(reader: Reader, policy: Compiled, target: Target, pks: Sequence[int]) -> Iterator[tuple[Row, Made]]:
    """What the policy makes of these trajectories, or of their steps."""
    statement = looking(policy, target, among_integers(_t.c.pk, "rows"))
    for row in reader.execute(statement, {"rows": json_list(list(pks))}):
        yield row, made_by(policy, target, row)


def would_stand(reader: Reader, made: dict[int, Made], pks: Sequence[int]) -> Iterator[tuple[str, str]]:
    """The readiness of trajectories now, and as it would be."""
    bases: dict[int, list[Row]] = {}
    for row in reader.execute(_BASE, {"rows": json_list(list(pks))}):
        bases.setdefault(row["pk"], []).append(row)
    for pk, rows in bases.items():
        row = rows[0]
        old = next((one["said"] for one in rows if one["said"] is not None), None)
        manual = next((one for one in rows if one["by"] == "manual"), None)
        new = manual["said"] if manual is not None else said(None, made[pk])
        admitted = is_admitted(row["failures"], row["group_state"] == "closed", row["status"])
        reasons = exchanged(row["excluded_reason"], old, new)
        yield (
            row["readiness"],
            rules.trajectory_readiness(row["status"], row["reward"] is not None, reasons, admitted),
        )


def standing(reader: Reader, target: Target, target_id: str) -> Standing:
    """Why a target is served or not; NotFoundError where it is not there."""
    found = reader.execute(_ONE[target], {"id": target_id})
    if not found:
        raise NotFoundError(f"no {target} {target_id!r}", path=f"{target}_id")
    [row] = found
    trajectory_id = row["trajectory_id"]
    decisions = read_decisions(reader, "trajectory", trajectory_id)
    own_reason = row["own_reason"] if target == "step" else None
    decisions = [one for one in decisions if one.step_id in (None, target_id)]
    policy = policies_in_force(reader, [row["channel"]]).get(row["channel"])
    held: list[RuleOutcome] = []
    if policy is not None and row["status"] != "open":
        held = list(_outcomes(reader, policy, target, row))
    failures = dict(_failures(reader, "trajectory", trajectory_id))
    if target == "step":
        failures.update(_failures(reader, "step", target_id))
    reasons = [rules.shown_reason(row["status"], row["readiness"], row["excluded_reason"]), own_reason]
    return Standing(
        trajectory_id=trajectory_id,
        step_id=target_id if target == "step" else None,
        readiness=rules.step_readiness(row["readiness"], own_reason),
        reasons=tuple(part for reason in reasons if reason is not None for part in reason.split("; ")),
        decisions=tuple(decisions),
        policy=policy.version if policy is not None else None,
        rules=tuple(held),
        failures=failures,
    )


def _outcomes(reader: Reader, policy: Compiled, target: Target, row: Row) -> Iterator[RuleOutcome]:
    trajectory = row["trajectory"] if target == "step" else row["pk"]
    targets: tuple[Target, ...] = ("step", "trajectory") if target == "step" else ("trajectory",)
    for one in targets:
        statement = looking(policy, one, among_integers(_t.c.pk, "rows"))
        found = reader.execute(statement, {"rows": json_list([trajectory])})
        own = [each for each in found if one == "trajectory" or each["pk"] == row["pk"]]
        for each in own:
            yield from outcomes(policy, one, holding(each))


def _failures(reader: Reader, kind: str, target_id: str) -> Iterator[tuple[str, str]]:
    for row in reader.execute(_FAILURES, {"kind": kind, "id": target_id}):
        yield row["evaluator"], read_json(row["error"] or '"failed"', str)
