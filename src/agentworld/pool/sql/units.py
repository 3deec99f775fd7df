"""How the units of a backlog stand now: one statement a kind of unit, whose rows become members (see unit_rules).

Token training refuses steps without ids: a unit any of whose steps lacks what is required is not for the spec. Steps
that are excluded, or of another channel, are no part of a unit. What a trajectory's steps in its own channel have is
kept on its row; steps of other channels are looked at.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Select, Text, and_, bindparam, case, false, func, or_, select, true

from agentworld.pool import schema
from agentworld.pool.group_rules import is_bounded
from agentworld.pool.lacks import LACKS_LOGPROBS, LACKS_MESSAGES, LACKS_TOKENS
from agentworld.pool.lease_rules import spaces_of, wanted_readiness
from agentworld.pool.sql.backlog import Scope, Waiting
from agentworld.pool.sql.connections import Reader, Row
from agentworld.pool.sql.json_functions import json_kind, json_list_has
from agentworld.pool.sql.lookups import among_integers, among_rows, unindexed
from agentworld.pool.sql.reads import bounded_search
from agentworld.pool.sql.rows import PROMPT_MESSAGES, RESPONSE_IDS, policy_from
from agentworld.pool.sql.statements import Statement, compiled, json_list, sql
from agentworld.pool.sql.transaction import Transaction
from agentworld.pool.sql.where import NOW, condition
from agentworld.pool.unit_rules import GONE, Member, Policies, Verdict, judge_group, judge_single
from agentworld.query import Subject, parse
from agentworld.records import BatchSpec, Readiness

_s, _t, _g = schema.steps, schema.trajectories, schema.groups
_SERVED: tuple[Readiness, ...] = ("complete", "ready")
_BITS = {"tokens": LACKS_TOKENS, "logprobs": LACKS_LOGPROBS, "messages": LACKS_MESSAGES}
Condition = ColumnElement[bool]
_channel: ColumnElement[str] = bindparam("in_channel", required=False, type_=Text())


class Wish(NamedTuple):
    """What decides on single trajectories and steps; statements are kept by it."""

    where: str | None
    needs: tuple[str, ...]
    wanted: tuple[Readiness, ...]


class Plan(NamedTuple):
    """One lease: the resolved spec, its consumer's backlog, and what its units must have."""

    spec: BatchSpec
    scope: Scope
    wish: Wish


def plan(spec: BatchSpec, consumer: str, needs: tuple[str, ...]) -> Plan:
    """The plan of a resolved spec."""
    scope = Scope(consumer, spec.unit or "step", spec.channel)
    return Plan(spec, scope, Wish(spec.where, needs, wanted_readiness(spec)))


def statements(plan: Plan) -> list[Statement]:
    """Those that `judge` asks."""
    match plan.scope.unit:
        case "step":
            return [_step_sql(plan.wish)]
        case "trajectory":
            return [_trajectory_sql(plan.wish)]
        case _:
            return [_GROUPS, _members_sql(plan.wish)]


def judge(
    reader: Reader | Transaction, plan: Plan, units: Sequence[Waiting], now: float, current: Policies
) -> list[Verdict]:
    """How each of the units stands; `now` is what `where` means by it. Not for pairs."""
    connection = reader.connection if isinstance(reader, Transaction) else reader
    if plan.scope.unit == "group":
        return judge_groups(connection, plan, units, now, current)
    statement = _step_sql(plan.wish) if plan.scope.unit == "step" else _trajectory_sql(plan.wish)
    rows = ask(connection, plan, statement, [unit.row_pk for unit in units], now)
    members = {row["step_row" if plan.scope.unit == "step" else "row"]: member_from(row) for row in rows}
    return [judge_single(members.get(unit.row_pk), plan.spec, current) for unit in units]


def judge_groups(
    connection: Reader, plan: Plan, units: Sequence[Waiting], now: float, current: Policies
) -> list[Verdict]:
    """How each of the groups stands."""
    found = group_members(connection, plan, [unit.row_pk for unit in units], now)
    verdicts = []
    for unit in units:
        group = found.get(unit.row_pk)
        verdicts.append(GONE if group is None else judge_group(*group, plan.spec, current))
    return verdicts


def group_members(connection: Reader, plan: Plan, rows: list[int], now: float) -> dict[int, tuple[bool, list[Member]]]:
    """By the group's row: whether it is offered, and its trajectories in the order of their creation."""
    groups: dict[str, tuple[int, bool, list[Member]]] = {}
    asked = _GROUPS, {"rows": json_list(rows)}
    of_members = _members_sql(plan.wish), {"rows": json_list(rows), "in_channel": plan.scope.channel, NOW: now}
    if plan.spec.where is None:
        connection.foresee([asked, of_members])
    for row in connection.execute(*asked):
        offered = row["state"] == "closed" or not is_bounded(row["size"], row["timeout_at"])
        groups[row["group_id"]] = (row["pk"], offered, [])
    with bounded_search(connection, plan.spec.where):
        found = connection.execute(*of_members)
    for row in found:
        groups[row["group_id"]][2].append(member_from(row))
    for _, _, members in groups.values():
        members.sort(key=lambda member: member.row)
    return {pk: (offered, members) for pk, offered, members in groups.values()}


def ask(connection: Reader, plan: Plan, statement: Statement, rows: list[int], now: float) -> list[Row]:
    """The rows of a statement over named rows."""
    bound = {"rows": json_list(rows), "in_channel": plan.scope.channel, NOW: now}
    with bounded_search(connection, plan.spec.where):
        return connection.execute(statement, bound)


def member_from(row: Row) -> Member:
    """A row of the statements here."""
    return Member(
        row=row["row"],
        trajectory_id=row["trajectory_id"],
        status=row["status"],
        served=row["readiness"] in _SERVED,
        usable=bool(row["usable"]),
        able=bool(row["able"]),
        wanted=bool(row["wanted"]),
        masked=bool(row["masked"]),
        reward=row["reward"],
        rewards={} if row["rewards"] is None else msgspec.json.decode(row["rewards"]),
        policy=policy_from(row),
        step=row["step_row"],
        step_id=row["step_id"],
    )


def usable_step() -> Condition:
    """A step that belongs to its trajectory's units in the channel."""
    return unindexed(and_(_s.c.excluded_reason.is_(None), _s.c.channel == _channel))


def _step_has(need: str) -> Condition:
    kind, _, name = need.partition(".")
    match kind:
        case "tokens":
            return _s.c.present.op("&")(RESPONSE_IDS) != 0
        case "logprobs":
            return _s.c.logprobs.is_not(None)
        case "messages":
            return and_(_s.c.present.op("&")(PROMPT_MESSAGES) != 0, _s.c.reply_node.is_not(None))
        case "annotation":
            return or_(json_list_has(_s.c.annotations, name), _trajectory_has(need))
        case "label":
            return or_(json_kind(_s.c.labels, [name]) != "null", _trajectory_has(need))
        case "logprob_space":
            # Unknown is none of them, and has to be false, not null, as it is negated.
            return and_(_s.c.logprobs.is_not(None), func.coalesce(_s.c.logprob_space, "").in_(spaces_of(need)))
        case "step_reward":
            return _s.c.reward.is_not(None)
        case _:
            return true()  # reward: a matter of the trajectory's readiness.


def _trajectory_has(need: str) -> Condition:
    """Whether what may also stand on the trajectory does."""
    kind, _, name = need.partition(".")
    if kind not in ("annotation", "label"):
        return false()
    return json_list_has(_t.c.annotations, name) if kind == "annotation" else json_kind(_t.c.labels, [name]) != "null"


def _has_step(*conditions: Condition) -> Condition:
    """Whether the trajectory has a usable step of that kind; in a form that PostgreSQL looks up row by row."""
    steps = select(_s.c.pk).where(_s.c.trajectory == _t.c.pk, usable_step(), *conditions)
    return steps.limit(1).scalar_subquery().is_not(None)


def _able(needs: tuple[str, ...]) -> Condition:
    """Whether no usable step of the trajectory lacks anything."""
    kept = [need for need in needs if need in _BITS]
    mask = sum(_BITS[need] for need in set(kept))
    in_own = _t.c.lacks.op("&")(mask) == 0 if mask else true()
    in_other = ~_has_step(~and_(true(), *(_step_has(need) for need in kept)))
    looked_up = [need for need in needs if need not in _BITS and need != "reward"]
    keyed = [or_(_trajectory_has(need), ~_has_step(~_step_has(need))) for need in looked_up]
    return and_(case((_t.c.channel == _channel, in_own), else_=in_other), *keyed)


def trajectory_columns(wish: Wish) -> list[ColumnElement[Any]]:
    """What a Member of a trajectory is read from."""
    usable = case((_t.c.channel == _channel, _t.c.usable_steps > 0), else_=_has_step())
    return [*_common(wish, "trajectories"), usable.label("usable"), _able(wish.needs).label("able"), *_no_step()]


def _no_step() -> list[ColumnElement[Any]]:
    return [func.nullif(1, 1).label("step_row"), func.nullif(1, 1).label("step_id")]


def step_columns(wish: Wish) -> list[ColumnElement[Any]]:
    """What a Member of one step is read from."""
    able = and_(true(), *(_step_has(need) for need in wish.needs))
    return [
        *_common(wish, "steps"),
        usable_step().label("usable"),
        able.label("able"),
        _s.c.pk.label("step_row"),
        _s.c.step_id,
    ]


def wanted_column(wish: Wish, subject: Subject) -> ColumnElement[Any]:
    """Whether the trajectory has the readiness that is wanted, and it (or its step) matches `where`."""
    matches = true() if wish.where is None else condition(parse(wish.where, subject), subject)
    # The condition is computed for what may be served alone.
    return case((_t.c.readiness.in_(wish.wanted), matches), else_=false()).label("wanted")


def _common(wish: Wish, subject: Subject) -> list[ColumnElement[Any]]:
    owner = _s if subject == "steps" else _t
    return [
        _t.c.pk.label("row"),
        _t.c.trajectory_id,
        _t.c.status,
        _t.c.readiness,
        _t.c.masked,
        _t.c.reward,
        _t.c.rewards,
        *(owner.c[f"policy_{part}"] for part in ("model", "run", "version")),
        wanted_column(wish, subject),
    ]


# Kept by the text of `where`, since the trees of `x == 1` and `x == true` are equal to Python.
@functools.lru_cache(maxsize=128)
def _trajectory_sql(wish: Wish) -> Statement:
    return compiled(select(*trajectory_columns(wish)).where(among_integers(_t.c.pk, "rows")))


@functools.lru_cache(maxsize=128)
def _step_sql(wish: Wish) -> Statement:
    statement: Select[Any] = select(*step_columns(wish)).join_from(_s, _t, _s.c.trajectory == _t.c.pk)
    return compiled(statement.where(among_integers(_s.c.pk, "rows")))


_GROUPS = sql(
    select(_g.c.pk, _g.c.group_id, _g.c.state, _g.c.size, _g.c.timeout_at).where(among_integers(_g.c.pk, "rows"))
)


@functools.lru_cache(maxsize=128)
def _members_sql(wish: Wish) -> Statement:
    statement: Select[Any] = select(_t.c.group_id, *trajectory_columns(wish))
    named = select(_g.c.group_id).where(among_integers(_g.c.pk, "rows"))
    return compiled(statement.where(among_rows(_t.c.group_id, named)))
