"""Garbage: blocks, message nodes, tool sets and media that nothing points at any more.

A row is deleted by the statement that sees that nothing points at it, while no other process writes, so a writer never
loses what it has just used. Writers keep rows of the forests in caches; each transaction that deletes such rows adds to
the counter `gc.generation`, and a writer that sees another value begins with empty caches.

Rows end with their last user, so what is loose is found from the leaves: a row that goes makes its parent loose.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import delete, exists, func, select

from agentworld.pool import counters, schema
from agentworld.pool.sql.connections import Reader
from agentworld.pool.sql.statements import Statement, integers, json_list, parameter, sql
from agentworld.pool.sql.transaction import Transaction

GENERATION = "gc.generation"
ROWS = 500  # that one statement deletes
RANGE = 20_000  # primary keys that one look for garbage spans
SECONDS = 0.02  # of work in one transaction
MEDIA_SECONDS = 86_400.0  # that a blob may wait for the message that shows it

_b, _n, _tools, _m, _u = (
    schema.token_blocks,
    schema.message_nodes,
    schema.tool_sets,
    schema.media,
    schema.media_uses,
)
_s = schema.steps
_block_below, _node_below = _b.alias("below"), _n.alias("below")
_LOOSE_BLOCK = (
    ~exists().where(_block_below.c.parent == _b.c.pk),
    ~exists().where(_s.c.block == _b.c.pk),
)
_LOOSE_NODE = (
    ~exists().where(_node_below.c.parent == _n.c.pk),
    ~exists().where(_s.c.prompt_node == _n.c.pk),
    ~exists().where(_s.c.reply_node == _n.c.pk),
)
_LOOSE_TOOLS = (~exists().where(_s.c.tools == _tools.c.pk),)
_LOOSE_MEDIA = (~exists().where(_u.c.digest == _m.c.digest), _m.c.created_at <= parameter("before"))

_DROP_BLOCKS = sql(delete(_b).where(_b.c.pk.in_(integers("rows")), *_LOOSE_BLOCK).returning(_b.c.parent))
_FIND_NODES = sql(select(_n.c.pk, _n.c.parent).where(_n.c.pk.in_(integers("rows")), *_LOOSE_NODE))
_DROP_NODES = sql(delete(_n).where(_n.c.pk.in_(integers("rows"))))
_DROP_USES = sql(delete(_u).where(_u.c.node.in_(integers("rows"))).returning(_u.c.digest))
_DROP_TOOLS = sql(delete(_tools).where(_tools.c.pk.in_(integers("rows")), *_LOOSE_TOOLS).returning(_tools.c.pk))
# Looked at before it is deleted: SQLite 3.40 returns no NULL of a row that it deletes.
_FIND_MEDIA = sql(
    select(_m.c.pk, _m.c.size, _m.c.data.is_(None).label("outside")).where(
        _m.c.digest == parameter("digest"), *_LOOSE_MEDIA
    )
)
_DROP_MEDIA = sql(delete(_m).where(_m.c.pk == parameter("row")))


def _range_sql(table: Any, column: Any, conditions: Sequence[Any]) -> Statement:
    return sql(select(column).where(table.c.pk > parameter("above"), table.c.pk <= parameter("upto"), *conditions))


_IN_RANGE = {
    "blocks": _range_sql(_b, _b.c.pk, _LOOSE_BLOCK),
    "nodes": _range_sql(_n, _n.c.pk, _LOOSE_NODE),
    "tools": _range_sql(_tools, _tools.c.pk, _LOOSE_TOOLS),
    "media": _range_sql(_m, _m.c.digest, _LOOSE_MEDIA),
}
_HIGHEST = {
    name: sql(select(func.coalesce(func.max(table.c.pk), 0)))
    for name, table in (("blocks", _b), ("nodes", _n), ("tools", _tools), ("media", _m))
}


@dataclass
class Loose:
    """Rows that may have lost what pointed at them: primary keys, and digests of media."""

    blocks: set[int] = field(default_factory=set)
    nodes: set[int] = field(default_factory=set)
    tools: set[int] = field(default_factory=set)
    media: set[bytes] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.blocks or self.nodes or self.tools or self.media)


@dataclass
class Dropped:
    """Rows that went. `outside`: digests of blobs in the pool's media folder, which are still to be removed."""

    token_blocks: int = 0
    message_nodes: int = 0
    tool_sets: int = 0
    media: int = 0
    media_bytes: int = 0
    outside: list[bytes] = field(default_factory=list)


def drop_loose(txn: Transaction, loose: Loose, dropped: Dropped) -> None:
    """Delete of `loose` what nothing points at, and what only that held, until it is empty or SECONDS have passed.

    A blob goes with the last message that shows it; one that no message has shown yet, once it is MEDIA_SECONDS old.
    """
    begin = time.perf_counter()
    before = (dropped.token_blocks, dropped.message_nodes, dropped.tool_sets)
    while loose and time.perf_counter() - begin < SECONDS:
        if loose.blocks:
            found = txn.execute(_DROP_BLOCKS, {"rows": json_list(_taken(loose.blocks))})
            dropped.token_blocks += len(found)
            txn.count(counters.BLOCKS, -len(found))
            loose.blocks.update(row[0] for row in found if row[0] is not None)
        elif loose.nodes:
            _drop_nodes(txn, loose, dropped)
        elif loose.tools:
            gone = len(txn.execute(_DROP_TOOLS, {"rows": json_list(_taken(loose.tools))}))
            dropped.tool_sets += gone
            txn.count(counters.TOOL_SETS, -gone)
        else:
            _drop_media(txn, loose.media.pop(), dropped, txn.now - MEDIA_SECONDS)
    if before != (dropped.token_blocks, dropped.message_nodes, dropped.tool_sets):
        txn.count(GENERATION)


def find_loose(reader: Reader, kind: str, above: int, upto: int, now: float) -> list[Any]:
    """Of a kind (blocks, nodes, tools or media), what nothing points at among the primary keys of a range."""
    bound: dict[str, Any] = {"above": above, "upto": upto}
    if kind == "media":
        bound["before"] = now - MEDIA_SECONDS
    return [row[0] for row in reader.execute(_IN_RANGE[kind], bound)]


def highest(reader: Reader, kind: str) -> int:
    """The highest primary key of a kind."""
    return int(reader.execute(_HIGHEST[kind])[0][0])


def _drop_nodes(txn: Transaction, loose: Loose, dropped: Dropped) -> None:
    found = txn.execute(_FIND_NODES, {"rows": json_list(_taken(loose.nodes))})
    if not found:
        return
    rows = json_list([row["pk"] for row in found])
    shown = {bytes(row[0]) for row in txn.execute(_DROP_USES, {"rows": rows})}
    txn.execute(_DROP_NODES, {"rows": rows})
    # In this transaction: afterwards nothing would tell these blobs from those that still wait for their message.
    for digest in sorted(shown):
        _drop_media(txn, digest, dropped, txn.now)
    dropped.message_nodes += len(found)
    txn.count(counters.MESSAGE_NODES, -len(found))
    loose.nodes.update(row["parent"] for row in found if row["parent"] is not None)


def _drop_media(txn: Transaction, digest: bytes, dropped: Dropped, before: float) -> None:
    for row in txn.execute(_FIND_MEDIA, {"digest": digest, "before": before}):
        txn.execute(_DROP_MEDIA, {"row": row["pk"]})
        dropped.media += 1
        dropped.media_bytes += row["size"]
        txn.count(counters.MEDIA, -1)
        txn.count(counters.MEDIA_BYTES, -row["size"])
        if row["outside"]:
            dropped.outside.append(digest)


def _taken(rows: set[int]) -> list[int]:
    """Up to ROWS of the set, which then lacks them; the youngest first, as they are the leaves."""
    if len(rows) <= ROWS:
        taken = list(rows)
        rows.clear()
        return taken
    taken = sorted(rows, reverse=True)[:ROWS]
    rows.difference_update(taken)
    return taken
