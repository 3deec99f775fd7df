"""Checks of decisions: that their targets are there and say what was decided, and that policies decide so still."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import and_, func, or_, select

from agentworld.pool import schema
from agentworld.pool.decision_rules import NOTHING, Target
from agentworld.pool.keeping.records import Problem, Progress
from agentworld.pool.rules import DELETING, IMPORTING
from agentworld.pool.sql.connections import Database, Reader
from agentworld.pool.sql.curating import SWEEPING_CHANNELS
from agentworld.pool.sql.judging import looking, made_by, policies_in_force
from agentworld.pool.sql.rows import from_json
from agentworld.pool.sql.statements import parameter, sql

ROWS = 500  # trajectories that one look spans

_t, _s, _d = schema.trajectories, schema.steps, schema.decisions
_ANEW = "Put the policy of the channel in force again, or decide it again"
_FREE = "Put a policy of the channel in force, and take it away again"
_LAST = sql(select(func.coalesce(func.max(_t.c.pk), 0)))
_ENDED = and_(
    _t.c.status != "open",
    or_(_t.c.excluded_reason.is_(None), _t.c.excluded_reason.not_in((DELETING, IMPORTING))),
)
_ORPHANS = sql(
    select(_d.c.pk)
    .outerjoin_from(_d, _t, _t.c.pk == _d.c.trajectory)
    .outerjoin(_s, and_(_d.c.subject == "step", _s.c.pk == _d.c.row_pk))
    .where(
        or_(
            _t.c.pk.is_(None),
            # Of a trajectory that is being deleted, steps go before its decisions do.
            and_(_d.c.subject == "step", _s.c.pk.is_(None), _t.c.excluded_reason.is_distinct_from(DELETING)),
        )
    )
    .limit(100)
)
_KEPT = sql(
    select(
        _d.c.subject,
        _d.c.row_pk,
        _d.c.by,
        _d.c.verdict,
        _d.c.rule,
        _d.c.reason,
        _d.c.labels,
        _d.c.said,
        _t.c.trajectory_id,
        _t.c.channel,
        _t.c.excluded_reason,
        _t.c.labels.label("now"),
        _s.c.step_id,
        _s.c.excluded_reason.label("own_reason"),
        _s.c.labels.label("own_now"),
    )
    .join_from(_d, _t, _t.c.pk == _d.c.trajectory)
    .outerjoin(_s, and_(_d.c.subject == "step", _s.c.pk == _d.c.row_pk))
    .where(
        _d.c.trajectory > parameter("above"),
        _d.c.trajectory <= parameter("upto"),
        _t.c.excluded_reason.is_distinct_from(DELETING),
    )
)


def decision_problems(database: Database, progress: Progress, deep: bool) -> Iterator[Problem]:
    """What decisions say that is not so; `deep`: every policy is asked again, which reads all that has ended."""
    with database.reading() as reader:
        for row in reader.execute(_ORPHANS, {}):
            yield Problem("reference", "decisions", str(row["pk"]), "its target is not there", "It has no effect")
        last = int(reader.execute(_LAST, {})[0][0])
    for above in range(0, last, ROWS):
        with database.reading() as reader:
            yield from _range(reader, above, above + ROWS, deep)
        progress("decisions", min(above + ROWS, last), last)


def _range(reader: Reader, above: int, upto: int, deep: bool) -> Iterator[Problem]:
    bound = {"above": above, "upto": upto}
    decided: dict[tuple[str, int], tuple[object, ...]] = {}
    left: dict[
        tuple[str, int], tuple[str, str, str]
    ] = {}  # table, name and channel of what no policy has been asked of
    for row in reader.execute(_KEPT, bound):
        on_step = row["subject"] == "step"
        table, name = ("steps", row["step_id"]) if on_step else ("trajectories", row["trajectory_id"])
        reasons = row["own_reason"] if on_step else row["excluded_reason"]
        labels = from_json(row["own_now"] if on_step else row["now"], {})
        if row["said"] is not None and row["said"] not in (reasons or "").split("; "):
            yield Problem("count", table, name, f"{row['said']!r} was decided and is not among its reasons", _ANEW)
        own = from_json(row["labels"], {})
        if wrong := [label for label, value in own.items() if labels.get(label) != value]:
            yield Problem("count", table, name, f"labels {', '.join(sorted(wrong))} were decided and are not so", _ANEW)
        if row["by"] == "policy":
            decided[row["subject"], row["row_pk"]] = (row["verdict"], row["rule"], row["reason"], own)
            if row["excluded_reason"] != IMPORTING:
                left[row["subject"], row["row_pk"]] = (table, name, row["channel"])
    if not deep:
        return
    sweeping = {row["channel"] for row in reader.execute(SWEEPING_CHANNELS, {})}
    targets: tuple[Target, ...] = ("step", "trajectory")
    ranged = and_(_t.c.pk > parameter("above"), _t.c.pk <= parameter("upto"), _ENDED)
    for channel, policy in policies_in_force(reader).items():
        for target in targets:
            statement = looking(policy, target, and_(ranged, _t.c.channel == parameter("of_channel")))
            for row in reader.execute(statement, {**bound, "of_channel": channel}):
                left.pop((target, row["pk"]), None)
                made = made_by(policy, target, row)
                now = (made.verdict, made.rule, made.reason, dict(made.labels))
                was = decided.get((target, row["pk"]), (NOTHING.verdict, NOTHING.rule, NOTHING.reason, {}))
                if now != was and channel not in sweeping:
                    table = "steps" if target == "step" else "trajectories"
                    yield Problem("count", table, row["id"], f"{was[0]} was decided, the policy says {now[0]}", _ANEW)
    for table, name, channel in left.values():
        if channel not in sweeping:
            yield Problem("count", table, name, "a policy that is not in force has decided about it", _FREE)
