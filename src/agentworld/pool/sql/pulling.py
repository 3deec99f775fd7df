"""Bringing a consumer's backlog up to date, chunk by chunk.

Each chunk is a short list of primary keys before anything is looked up by them, so that no engine reads a table.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, FromClause, Select, Text, and_, func, literal, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from agentworld.pool import schema
from agentworld.pool.sql import backlog, pairs
from agentworld.pool.sql.backlog import COLUMNS, OF_GROUP, READY, Position, Scope, text_of
from agentworld.pool.sql.connections import Reader, Row
from agentworld.pool.sql.lookups import among_integers, among_texts, unindexed
from agentworld.pool.sql.statements import Statement, json_list, parameter, sql
from agentworld.pool.sql.transaction import Transaction
from agentworld.pool.sql.units import Plan

PULL_ROWS = 512  # that one chunk puts into the backlog, or looks at, to a factor of two
STEP_BITS = 20  # of a step's place, below those of its trajectory
_MEMBER_STEPS = 16  # guessed of a trajectory of a group
FEEDBACK = "feedback"

_k, _s, _t, _g, _d = schema.backlog, schema.steps, schema.trajectories, schema.groups, schema.deliveries
_in_channel = unindexed(and_(_s.c.channel == text_of("channel"), _s.c.excluded_reason.is_(None)))
_is_served = unindexed(_t.c.readiness.in_(("complete", "ready")))


def _headers(table: Any, name: ColumnElement[Any], cost: ColumnElement[Any]) -> Statement:
    """What became fit to be served, and what taking each costs: rows put into the backlog, or looked at for it."""
    own = (table.c.channel == text_of("channel")).label("own")
    return sql(
        select(table.c.pk, table.c.ready_seq, name.label("name"), own, cost.label("cost"))
        .where(table.c.ready_seq > parameter("after"))
        .order_by(table.c.ready_seq)
        .limit(PULL_ROWS)
    )


_OF_TRAJECTORIES = _headers(_t, _t.c.trajectory_id, _t.c.step_count)
_OF_GROUPS = _headers(_g, _g.c.group_id, _g.c.members * _MEMBER_STEPS)
_WITH_STEPS = sql(select(_s.c.trajectory).distinct().where(among_integers(_s.c.trajectory, "rows"), _in_channel))
_STEP_KEYS = sql(select(_s.c.step_id).where(among_integers(_s.c.trajectory, "rows"), _in_channel))
_MEMBERS = sql(select(_t.c.pk, _t.c.group_id).where(among_texts(_t.c.group_id, "ids")))
_PRIORITIES = sql(
    select(_t.c.group_id, func.max(_t.c.priority).label("highest"))
    .where(among_texts(_t.c.group_id, "ids"))
    .group_by(_t.c.group_id)
)
_RANK = sql(
    update(_k)
    .where(
        backlog.of_scope(_k),
        _k.c.key == parameter("of_key"),
    )
    .values(rank=parameter("new_rank"))
)


class _Kind(NamedTuple):
    """A unit's statements: `headers` of its chunk, and how rows by their keys become rows of the backlog."""

    headers: Statement
    put: Statement


def _put(unit: str, key: Any, row: Any, place: Any, rank: Any, source: FromClause, *found: Any) -> Statement:
    state = backlog.delivered(_d.c.state, None, literal(unit), key)
    columns = (
        text_of("consumer"),
        literal(unit, Text),
        text_of("channel"),
        key,
        row,
        place,
        rank,
        backlog.shuffle_of(row),
        parameter("new_mark"),
    )
    labelled = [column.label(name) for column, name in zip(columns, COLUMNS, strict=True)]
    free = func.coalesce(state, literal("available")) == literal("available")
    chosen: Select[Any] = select(*labelled).select_from(source).where(*found, unindexed(free))
    inserted = upsert(_k).from_select(list(COLUMNS), chosen)
    # Units that are there already have changed in what specs may ask for.
    return sql(
        inserted.on_conflict_do_update(
            index_elements=["consumer", "unit", "channel", "key"],
            set_={"rank": inserted.excluded.rank, "mark": inserted.excluded.mark},
        ).returning(_k.c.key)
    )


_KINDS = {
    "trajectory": _Kind(
        _OF_TRAJECTORIES,
        _put(
            "trajectory",
            _t.c.trajectory_id,
            _t.c.pk,
            _t.c.ready_seq,
            -_t.c.priority,
            _t,
            among_integers(_t.c.pk, "rows"),
            _is_served,
        ),
    ),
    "step": _Kind(
        _OF_TRAJECTORIES,
        _put(
            "step",
            _s.c.step_id,
            _s.c.pk,
            _t.c.ready_seq * 2**STEP_BITS + _s.c.step_index,
            -_t.c.priority,
            _s.join(_t, _t.c.pk == _s.c.trajectory),
            among_integers(_s.c.trajectory, "rows"),
            _in_channel,
            _is_served,
        ),
    ),
    "group": _Kind(
        _OF_GROUPS,
        _put("group", _g.c.group_id, _g.c.pk, _g.c.ready_seq, literal(0), _g, among_integers(_g.c.pk, "rows")),
    ),
    "pair": _Kind(
        _OF_GROUPS,
        _put(
            "pair",
            text_of("prefix") + _g.c.group_id,
            _g.c.pk,
            _g.c.ready_seq,
            literal(0),
            _g,
            among_integers(_g.c.pk, "rows"),
        ),
    ),
}


def statements(plan: Plan) -> list[Statement]:
    """Those that `pull` always asks."""
    return list(_KINDS[plan.scope.unit])


def is_behind(reader: Reader, plan: Plan) -> bool:
    """Whether something that the plan's backlog does not know became fit to be served."""
    scope = plan.scope
    if backlog.latest(reader, READY) > backlog.position(reader, scope).ready_seq:
        return True
    if scope.unit != "pair":
        return False
    return backlog.latest(reader, FEEDBACK) > backlog.position(reader, _comparisons(scope)).ready_seq


def lag(txn: Transaction, plan: Plan, at: Position) -> int:
    """How far the plan's backlog is behind, in numbers of its sequences."""
    behind = backlog.latest(txn, READY) - at.ready_seq
    if plan.scope.unit == "pair":
        behind += backlog.latest(txn, FEEDBACK) - backlog.position(txn, _comparisons(plan.scope)).ready_seq
    return behind


def pull(txn: Transaction, plan: Plan, at: Position) -> tuple[Position, bool]:
    """Take one chunk; returns the new position, and whether there is more."""
    scope = plan.scope
    if scope.unit == "pair" and _pull_comparisons(txn, scope, at.seed):
        return at, True
    latest = txn.counter(f"pk.{READY}")
    if at.ready_seq >= latest:
        return at, False
    kind = _KINDS[scope.unit]
    found = txn.execute(kind.headers, {"channel": scope.channel, "after": at.ready_seq})
    until = latest if len(found) < PULL_ROWS else found[-1]["ready_seq"]
    spent = 0
    for number, row in enumerate(found, start=1):
        # A step of its channel is a row put in; of another channel, a row looked at for steps in this one.
        spent += row["cost"] if scope.unit == "step" or not row["own"] else 1
        if spent >= PULL_ROWS and number < len(found):
            found, until = found[:number], row["ready_seq"]
            break
    chosen = _of_channel(txn, scope, found)
    if chosen:
        bound: dict[str, Any] = {
            "consumer": scope.consumer,
            "channel": scope.channel,
            "rows": json_list([row["pk"] for row in chosen]),
        }
        prefix = OF_GROUP if scope.unit == "pair" else ""
        if prefix:
            bound["prefix"] = prefix
        if scope.unit == "step":
            keys = [row[0] for row in txn.execute(_STEP_KEYS, bound)] if backlog.is_there(txn, scope) else []
        else:
            keys = [prefix + row["name"] for row in chosen]
        there = backlog.known_keys(txn, scope, keys)
        bound["new_mark"] = txn.next_pk(backlog.MARKS)
        put = txn.execute(kind.put, {**bound, **backlog.shuffle_bound(at.seed)})
        backlog.count(txn, scope, sum(row[0] not in there for row in put))
        if scope.unit in ("group", "pair"):
            _rank_groups(txn, scope, [row["name"] for row in chosen])
    at = backlog.move(txn, scope, at._replace(ready_seq=until))
    return at, until < latest


def reshuffle(txn: Transaction, plan: Plan, at: Position, after: int | None) -> tuple[Position, int | None]:
    """Shuffle a chunk of the backlog by the spec's seed; returns where the next begins, None once all are."""
    seed = plan.spec.seed
    until = backlog.reshuffle(txn, plan.scope, -1 if after is None else after, seed)
    if until is None:
        at = backlog.move(txn, plan.scope, at._replace(seed=seed))
    return at, until


def _of_channel(txn: Transaction, scope: Scope, found: list[Row]) -> list[Row]:
    """Those in the channel, and those of other channels with a step in it; for steps, all that may have one."""
    foreign = [row for row in found if not row["own"]]
    if not foreign or scope.unit == "step":
        return found
    rows: dict[int, Any] = {row["pk"]: row["pk"] for row in foreign}
    if scope.unit != "trajectory":
        groups = {row["name"]: row["pk"] for row in foreign}
        members = txn.execute(_MEMBERS, {"ids": json_list(list(groups))})
        rows = {row["pk"]: groups[row["group_id"]] for row in members}
    with_steps = txn.execute(_WITH_STEPS, {"rows": json_list(list(rows)), "channel": scope.channel})
    there = {rows[row["trajectory"]] for row in with_steps}
    return [row for row in found if row["own"] or row["pk"] in there]


def _rank_groups(txn: Transaction, scope: Scope, ids: list[str]) -> None:
    """A group has the highest priority of its trajectories; most have none."""
    prefix = OF_GROUP if scope.unit == "pair" else ""
    ranked = [
        {**scope.bound, "of_key": prefix + row["group_id"], "new_rank": -row["highest"]}
        for row in txn.execute(_PRIORITIES, {"ids": json_list(ids)})
        if row["highest"]
    ]
    txn.many(_RANK, ranked)


def _comparisons(scope: Scope) -> Scope:
    """Where the position among comparisons is kept."""
    return Scope(scope.consumer, "comparison", scope.channel)


def _pull_comparisons(txn: Transaction, scope: Scope, seed: int) -> bool:
    """Take a chunk of new comparisons; whether there may be more."""
    own = _comparisons(scope)
    at = backlog.position(txn, own)
    last = txn.counter(f"pk.{FEEDBACK}")
    if at.ready_seq >= last:
        return False
    taken = pairs.pull_comparisons(txn, scope, at.ready_seq, seed)
    backlog.move(txn, own, at._replace(ready_seq=last if taken is None else taken))
    return taken is not None
