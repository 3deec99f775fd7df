"""What a consumer may still lease, by unit and channel.

What becomes fit to be served gets the next number of one sequence (`ready_seq`). A consumer's position says up to where
it has taken that sequence into its backlog, chunk by chunk, so a lease never looks at what was delivered: units leave
the backlog when they are leased, and come back to their old place when they are given back.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Text,
    and_,
    bindparam,
    delete,
    func,
    select,
    tuple_,
    update,
)
from sqlalchemy.dialects.postgresql import insert as upsert

from agentworld.pool import schema
from agentworld.pool.counters import BACKLOG
from agentworld.pool.schema.consuming import IN_ORDER
from agentworld.pool.sql.connections import Asked, Reader, Row
from agentworld.pool.sql.lookups import among_texts
from agentworld.pool.sql.statements import Statement, json_list, parameter, sql
from agentworld.pool.sql.transaction import Transaction
from agentworld.pool.unit_rules import SHUFFLE_PRIME, shuffle_rounds
from agentworld.records import Order

READY = "ready_seq"  # the sequence: a counter like those of primary keys
MARKS = "backlog"  # the sequence of marks
OF_GROUP, OF_COMPARISON = "group:", "comparison:"  # what keys of pairs begin with
RESHUFFLE_ROWS = 2_000

_k, _p, _c, _d, _u = schema.backlog, schema.positions, schema.consumers, schema.deliveries, schema.batch_units
_s, _t, _g = schema.steps, schema.trajectories, schema.groups
COLUMNS = ("consumer", "unit", "channel", "key", "row_pk", "place", "rank", "shuffle", "mark")


class Scope(NamedTuple):
    """Whose backlog: one consumer, unit and channel."""

    consumer: str
    unit: str
    channel: str

    @property
    def bound(self) -> dict[str, Any]:
        """As parameters."""
        return self._asdict()


class Position(NamedTuple):
    """How far the sequence was taken, and the seed that the backlog is shuffled with."""

    ready_seq: int
    seed: int


START = Position(0, 0)


class Waiting(NamedTuple):
    """A unit in the backlog, with how often it was handed out and the state of its delivery, if any."""

    key: str
    row_pk: int
    place: int
    rank: float
    shuffle: int
    state: str | None
    deliveries: int


class Marked(NamedTuple):
    """A unit that came in, came back or changed, and where it stands in the order."""

    key: str
    place: tuple[float, int]


def text_of(name: str) -> ColumnElement[str]:
    """A text parameter."""
    return bindparam(name, required=False, type_=Text())


def of_scope(table: Any) -> ColumnElement[bool]:
    """The rows of one scope, given as parameters."""
    return and_(*(table.c[name] == parameter(name) for name in Scope._fields))


def _in_order() -> ColumnElement[bool]:
    """The rows of one scope, found by an index of their order."""
    return and_(of_scope(_k), IN_ORDER)


def shuffle_of(number: ColumnElement[Any]) -> ColumnElement[Any]:
    """As unit_rules.shuffled."""
    found = number
    for turn in range(2):
        found = (found % SHUFFLE_PRIME * parameter(f"factor{turn}") + parameter(f"shift{turn}")) % SHUFFLE_PRIME
        found = found * found % SHUFFLE_PRIME
    return found


def shuffle_bound(seed: int) -> dict[str, int]:
    """The parameters of `shuffle_of`."""
    rounds = shuffle_rounds(seed)
    return {
        f"{name}{n}": value
        for n, pair in enumerate(rounds)
        for name, value in zip(("factor", "shift"), pair, strict=True)
    }


def delivered(column: ColumnElement[Any], of: Any, unit: Any = None, key: Any = None) -> ColumnElement[Any]:
    """A column of the delivery of a unit, null where there was none: a look-up, never a join with all deliveries."""
    return (
        select(column)
        .where(
            _d.c.consumer == (text_of("consumer") if of is None else of.c.consumer),
            _d.c.unit == (unit if of is None else of.c.unit),
            _d.c.key == (of.c.key if key is None else key),
            _d.c.channel == (text_of("channel") if of is None else of.c.channel),
        )
        .scalar_subquery()
    )


_ADD_CONSUMER = sql(upsert(_c).values(name=parameter("consumer"), epoch=0).on_conflict_do_nothing())
_POSITION = sql(select(_p.c.ready_seq, _p.c.seed).where(of_scope(_p)))
_new_position = upsert(_p).values({name: parameter(name) for name in (*Scope._fields, "ready_seq", "seed")})
_SET_POSITION = sql(
    _new_position.on_conflict_do_update(
        index_elements=list(Scope._fields),
        set_={name: _new_position.excluded[name] for name in ("ready_seq", "seed")},
    )
)
_counters = schema.counters.c
_LATEST = sql(select(_counters.value).where(_counters.name == parameter("name")))

_at = (parameter("after_first"), parameter("after_place"))
_PAGE_ORDER: dict[Order, tuple[ColumnElement[bool], tuple[Any, ...]]] = {
    "fifo": (_k.c.place > _at[1], (_k.c.place,)),
    "freshest": (_k.c.place < _at[1], (_k.c.place.desc(),)),
    "random": (tuple_(_k.c.shuffle, _k.c.place) > tuple_(*_at), (_k.c.shuffle, _k.c.place)),
    "priority": (tuple_(_k.c.rank, _k.c.place) > tuple_(*_at), (_k.c.rank, _k.c.place)),
}
_select_waiting = select(
    *(_k.c.key, _k.c.row_pk, _k.c.place, _k.c.rank, _k.c.shuffle),
    # Not joined: an engine that takes them for few reads all deliveries for each row.
    *(delivered(column, _k).label(column.name) for column in (_d.c.state, _d.c.count)),
)
_PAGES = {
    order: sql(_select_waiting.where(_in_order(), after).order_by(*columns).limit(parameter("limit")))
    for order, (after, columns) in _PAGE_ORDER.items()
}
_NAMED = sql(_select_waiting.where(of_scope(_k), among_texts(_k.c.key, "keys")))
_TAKE_OUT = sql(delete(_k).where(of_scope(_k), among_texts(_k.c.key, "keys")).returning(_k.c.key))
_REMOVE = sql(delete(_k).where(of_scope(_k), among_texts(_k.c.key, "keys")))
_THERE = sql(select(_k.c.key).where(of_scope(_k), among_texts(_k.c.key, "keys")))
_returned = select(
    text_of("consumer"),
    text_of("unit"),
    text_of("channel"),
    _u.c.key,
    _u.c.row_pk,
    _u.c.place,
    func.coalesce(_u.c.rank, 0),
    shuffle_of(_u.c.row_pk),
    parameter("new_mark"),
).where(_u.c.batch == parameter("row"), _u.c.row_pk.is_not(None), among_texts(_u.c.key, "keys"))
_PUT_BACK = sql(upsert(_k).from_select(list(COLUMNS), _returned).on_conflict_do_nothing().returning(_k.c.key))
_MARKED = sql(
    select(_k.c.key, _k.c.place, _k.c.rank, _k.c.shuffle)
    .where(_in_order(), _k.c.mark > parameter("after"))
    .order_by(_k.c.mark)
    .limit(parameter("limit"))
)
_chunk = (
    select(_k.c.place).where(_in_order(), _k.c.place > parameter("after")).order_by(_k.c.place).limit(RESHUFFLE_ROWS)
)
_CHUNK_END = sql(select(func.max(_chunk.subquery().c.place)))
_RESHUFFLE = sql(
    update(_k)
    .where(_in_order(), _k.c.place > parameter("after"), _k.c.place <= parameter("until"))
    .values(shuffle=shuffle_of(_k.c.row_pk))
)


def statements(order: Order) -> list[Statement]:
    """Those of a lease."""
    return [_POSITION, _PAGES[order], _NAMED, _MARKED, _REMOVE]


def position(reader: Reader | Transaction, scope: Scope) -> Position:
    """Where the consumer stands."""
    rows = reader.execute(*ask_position(scope))
    return Position(rows[0]["ready_seq"], rows[0]["seed"]) if rows else START


def ask_position(scope: Scope) -> Asked:
    """What `position` asks."""
    return _POSITION, scope.bound


def latest(reader: Reader | Transaction, table: str) -> int:
    """The last number that was given out of a sequence."""
    if isinstance(reader, Transaction):
        return reader.counter(f"pk.{table}")
    rows = reader.execute(_LATEST, {"name": f"pk.{table}"})
    return rows[0]["value"] if rows else 0


def add_consumer(txn: Transaction, name: str) -> None:
    """So that backlogs can belong to it."""
    txn.execute(_ADD_CONSUMER, {"consumer": name})


def move(txn: Transaction, scope: Scope, to: Position) -> Position:
    """Note the position."""
    txn.execute(_SET_POSITION, {**scope.bound, **to._asdict()})
    return to


def page(
    reader: Reader | Transaction, scope: Scope, order: Order, after: tuple[float, int], limit: int
) -> list[Waiting]:
    """Up to `limit` units behind `after` (see `order_key`) in the order."""
    return [_waiting(row) for row in reader.execute(*ask_page(scope, order, after, limit))]


def ask_page(scope: Scope, order: Order, after: tuple[float, int], limit: int) -> Asked:
    """What `page` asks."""
    bound = {**scope.bound, "after_place": -after[1] if order == "freshest" else after[1], "limit": limit}
    if order in ("random", "priority"):
        bound["after_first"] = after[0]
    return _PAGES[order], bound


def marked(reader: Reader | Transaction, scope: Scope, order: Order, after: int, limit: int) -> list[Marked]:
    """Up to `limit` units with a mark over `after`."""
    rows = reader.execute(*ask_marked(scope, after, limit))
    return [Marked(row["key"], _order_key(order, row["place"], row["rank"], row["shuffle"])) for row in rows]


def ask_marked(scope: Scope, after: int, limit: int) -> Asked:
    """What `marked` asks."""
    return _MARKED, {**scope.bound, "after": after, "limit": limit}


def named(reader: Reader | Transaction, scope: Scope, keys: list[str]) -> list[Waiting]:
    """Those of the units that are there."""
    return [_waiting(row) for row in reader.execute(*ask_named(scope, keys))]


def ask_named(scope: Scope, keys: list[str]) -> Asked:
    """What `named` asks."""
    return _NAMED, {**scope.bound, "keys": json_list(keys)}


def order_key(order: Order, unit: Waiting) -> tuple[float, int]:
    """Where a unit stands in the order; ascends."""
    return _order_key(order, unit.place, unit.rank, unit.shuffle)


def _order_key(order: Order, place: int, rank: float, shuffle: int) -> tuple[float, int]:
    if order == "random":
        return shuffle, place
    if order == "priority":
        return rank, place
    return 0, -place if order == "freshest" else place


def before_all(order: Order) -> tuple[float, int]:
    """A key before that of every unit."""
    if order == "freshest":
        return 0, -(2**62)
    return (float("-inf") if order == "priority" else -1), -1


def count(txn: Transaction, scope: Scope, change: int) -> None:
    """Count units that came into the backlog or left it."""
    txn.count(BACKLOG + scope.consumer, change)


def is_there(txn: Transaction, scope: Scope) -> bool:
    """Whether any backlog of the consumer holds something."""
    return txn.counter(BACKLOG + scope.consumer) > 0


def known_keys(txn: Transaction, scope: Scope, keys: list[str]) -> set[str]:
    """Those of the keys that are in this backlog; nothing is looked up where the consumer's backlogs are empty."""
    if not keys or not is_there(txn, scope):
        return set()
    return {row[0] for row in txn.execute(_THERE, {**scope.bound, "keys": json_list(keys)})}


def take_out(txn: Transaction, scope: Scope, keys: list[str]) -> None:
    """Remove units from this backlog."""
    if keys:
        count(txn, scope, -len(txn.execute(_TAKE_OUT, {**scope.bound, "keys": json_list(keys)})))


def remove(txn: Transaction, scope: Scope, keys: list[str]) -> None:
    """As `take_out`, for different units that this transaction has seen in the backlog."""
    if keys:
        txn.execute(_REMOVE, {**scope.bound, "keys": json_list(keys)})
        count(txn, scope, -len(keys))


def put_back(txn: Transaction, scope: Scope, batch: int, keys: list[str]) -> None:
    """Put units of a batch back to where they were found."""
    if keys:
        bound = {**scope.bound, "row": batch, "keys": json_list(keys), "new_mark": txn.next_pk(MARKS)}
        count(txn, scope, len(txn.execute(_PUT_BACK, {**bound, **shuffle_bound(position(txn, scope).seed)})))


def reshuffle(txn: Transaction, scope: Scope, after: int, seed: int) -> int | None:
    """Shuffle a chunk of the backlog with another seed; returns where to go on, None at the end."""
    bound = {**scope.bound, "after": after}
    until: int | None = txn.execute(_CHUNK_END, bound)[0][0]
    if until is None:
        return None
    txn.execute(_RESHUFFLE, {**bound, "until": until, **shuffle_bound(seed)})
    return until


def _waiting(row: Row) -> Waiting:
    return Waiting(
        row["key"], row["row_pk"], row["place"], row["rank"], row["shuffle"], row["state"], row["count"] or 0
    )
