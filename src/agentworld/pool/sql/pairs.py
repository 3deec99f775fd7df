"""Units of preference pairs: from comparisons of humans, and from groups the best against the worst.

A comparison that its source took back (by one of the same two with the value 0) is no pair any more.

The key of a pair is stable: `comparison:ID` of its feedback, or `group:ID`; each is handed out once a consumer.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from sqlalchemy import exists, or_, select
from sqlalchemy.dialects.postgresql import insert as upsert

from agentworld.pool import schema
from agentworld.pool.sql import backlog, units
from agentworld.pool.sql.backlog import OF_COMPARISON, OF_GROUP, READY, Scope, Waiting
from agentworld.pool.sql.connections import Reader, Row
from agentworld.pool.sql.lookups import among_texts, unindexed
from agentworld.pool.sql.reads import bounded_search
from agentworld.pool.sql.statements import Statement, compiled, json_list, parameter, sql
from agentworld.pool.sql.transaction import Transaction
from agentworld.pool.sql.units import Plan, Wish
from agentworld.pool.sql.where import NOW
from agentworld.pool.unit_rules import GONE, Member, Policies, Verdict, judge_comparison, judge_pair_of_group, shuffled

_f, _s, _t, _k = schema.feedback, schema.steps, schema.trajectories, schema.backlog
COMPARISONS_AT_ONCE = 256
_later = _f.alias("later")
_STANDS = or_(_f.c.value.is_(None), _f.c.value != parameter("zero")) & ~exists().where(
    _later.c.target == _f.c.target,
    _later.c.target_id == _f.c.target_id,
    unindexed(_later.c.pk > _f.c.pk),
    _later.c.kind == "comparison",
    _later.c.other_id == _f.c.other_id,
    _later.c.source == _f.c.source,
    _later.c.value == parameter("zero"),
)
"""Not taken back, and no taking back itself."""
_ZERO = {"zero": "0"}  # as it is stored (`signal_rules`)

_NEW = sql(
    select(_f.c.pk, _f.c.feedback_id)
    .where(_f.c.pk > parameter("after"), unindexed(_f.c.kind == "comparison"), _STANDS)
    .order_by(_f.c.pk)
    .limit(parameter("limit"))
)
_new = upsert(_k).values({column.name: parameter(column.name) for column in _k.c})
_ADD = sql(_new.on_conflict_do_nothing())
_COMPARISONS = sql(
    select(_f.c.pk, _f.c.target, _f.c.target_id, _f.c.other_id).where(among_texts(_f.c.feedback_id, "ids"), _STANDS)
)


def pull_comparisons(txn: Transaction, scope: Scope, after: int, seed: int) -> int | None:
    """Take comparisons into the backlog that came after the feedback with this number; the last one's, or None."""
    rows = txn.execute(_NEW, {"after": after, "limit": COMPARISONS_AT_ONCE, **_ZERO})
    if not rows:
        return None
    # They take their places in the sequence in which groups become fit to be served.
    first, mark = txn.next_pk(READY, len(rows)), txn.next_pk(backlog.MARKS)
    txn.many(
        _ADD,
        [
            {
                **scope.bound,
                "key": OF_COMPARISON + row["feedback_id"],
                "row_pk": row["pk"],
                "place": first + number,
                "rank": 0.0,
                "shuffle": shuffled(row["pk"], seed),
                "mark": mark,
            }
            for number, row in enumerate(rows)
        ],
    )
    backlog.count(txn, scope, len(rows))
    return int(rows[-1]["pk"])


def judge(
    reader: Reader | Transaction, plan: Plan, found: Sequence[Waiting], now: float, current: Policies
) -> list[Verdict]:
    """How each of the pairs stands."""
    connection = reader.connection if isinstance(reader, Transaction) else reader
    groups = units.group_members(connection, plan, [one.row_pk for one in found if one.key.startswith(OF_GROUP)], now)
    compared = _compared(connection, plan, [one for one in found if one.key.startswith(OF_COMPARISON)], now)
    verdicts = []
    for one in found:
        if one.key.startswith(OF_COMPARISON):
            there = one.key in compared
            better, worse = compared.get(one.key, (None, None))
            verdicts.append(judge_comparison(better, worse, there, plan.spec, current))
        elif (group := groups.get(one.row_pk)) is None:
            verdicts.append(GONE)
        else:
            verdicts.append(judge_pair_of_group(*group, plan.spec, current))
    return verdicts


def _compared(
    connection: Reader, plan: Plan, found: Sequence[Waiting], now: float
) -> dict[str, tuple[Member | None, Member | None]]:
    """By key, the two sides of each comparison that is there."""
    if not found:
        return {}
    ids = [one.key.removeprefix(OF_COMPARISON) for one in found]
    rows = {row["pk"]: row for row in connection.execute(_COMPARISONS, {"ids": json_list(ids), **_ZERO})}
    members: dict[tuple[str, str], Member] = {}
    for target, statement in (("trajectory", _trajectories_sql(plan.wish)), ("step", _steps_sql(plan.wish))):
        wanted = [row[side] for row in rows.values() if row["target"] == target for side in ("target_id", "other_id")]
        if not wanted:
            continue
        bound = {"ids": json_list(wanted), "in_channel": plan.scope.channel, NOW: now}
        with bounded_search(connection, plan.spec.where):
            answered = connection.execute(statement, bound)
        for row in answered:
            member = units.member_from(row)
            members[target, member.step_id or member.trajectory_id] = member

    def sides(row: Row) -> tuple[Member | None, Member | None]:
        return members.get((row["target"], row["target_id"])), members.get((row["target"], row["other_id"]))

    return {one.key: sides(rows[one.row_pk]) for one in found if one.row_pk in rows}


@functools.lru_cache(maxsize=64)
def _trajectories_sql(wish: Wish) -> Statement:
    return compiled(select(*units.trajectory_columns(wish)).where(among_texts(_t.c.trajectory_id, "ids")))


@functools.lru_cache(maxsize=64)
def _steps_sql(wish: Wish) -> Statement:
    # A spec of pairs filters trajectories, also where steps are compared.
    columns: list[Any] = units.step_columns(wish._replace(where=None))
    wanted = units.wanted_column(wish, "trajectories")
    columns = [wanted if column.name == "wanted" else column for column in columns]
    return compiled(
        select(*columns).join_from(_s, _t, _s.c.trajectory == _t.c.pk).where(among_texts(_s.c.step_id, "ids"))
    )
