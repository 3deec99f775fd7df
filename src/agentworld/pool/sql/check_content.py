"""Checks of content: every digest computed again from what is stored and from the digest before it in its chain."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
from sqlalchemy import func, select

from agentworld.errors import AgentWorldError
from agentworld.forest import BLOCK_SIZE, exact_key, vocabulary_root
from agentworld.pool import schema
from agentworld.pool.exact_text import read_json, spoken_json
from agentworld.pool.keeping.records import Problem, Progress
from agentworld.pool.media import media_digest, media_uses_of
from agentworld.pool.sql.bodies import Body, BodyReader, unpack_alone
from agentworld.pool.sql.check_steps import step_problems
from agentworld.pool.sql.connections import Database, Row
from agentworld.pool.sql.packing import unpack_ids
from agentworld.pool.sql.reads import read_nodes
from agentworld.pool.sql.statements import Statement, parameter, sql
from agentworld.records import Message, digest
from agentworld.records.ids import DIGEST_SIZE

ROWS = 2_000  # that one look reads

_RESTORE = "Restore the pool from a backup; until then leave out the steps that hold it"
_b, _n, _tools, _m = schema.token_blocks, schema.message_nodes, schema.tool_sets, schema.media
_block_above, _node_above = _b.alias("above_it"), _n.alias("above_it")
_BLOCKS = sql(
    select(_b.c.pk, _b.c.digest, _b.c.ids, _b.c.parent, _block_above.c.digest.label("parent_digest"))
    .outerjoin_from(_b, _block_above, _block_above.c.pk == _b.c.parent)
    .where(_b.c.pk > parameter("above"), _b.c.pk <= parameter("upto"))
    .order_by(_b.c.pk)
)
_NODES = sql(
    select(
        _n.c.pk, _n.c.digest, _n.c.body, _n.c.coding, _n.c.parent, _n.c.depth,
        _node_above.c.digest.label("parent_digest"), _node_above.c.depth.label("parent_depth"),
    )
    .outerjoin_from(_n, _node_above, _node_above.c.pk == _n.c.parent)
    .where(_n.c.pk > parameter("above"), _n.c.pk <= parameter("upto"))
    .order_by(_n.c.pk)
)  # fmt: skip
_USES = sql(select(schema.media_uses.c.digest).where(schema.media_uses.c.node == parameter("node")))
_TOOLS = sql(
    select(_tools.c.pk, _tools.c.digest, _tools.c.body, _tools.c.coding).where(
        _tools.c.pk > parameter("above"), _tools.c.pk <= parameter("upto")
    )
)
_MEDIA = sql(
    select(_m.c.pk, _m.c.digest, _m.c.size, _m.c.data)
    .where(_m.c.pk > parameter("above"), _m.c.data.is_not(None))
    .order_by(_m.c.pk)
    .limit(parameter("limit"))
)
_HIGHEST = {
    table.name: sql(select(func.coalesce(func.max(table.c.pk), 0))) for table in (_b, _n, _tools, _m, schema.steps)
}
_VOCABULARIES = sql(select(schema.steps.c.vocabulary).distinct())


class Roots:
    """Digests that a chain may begin under; the one that was right last is tried first, as like rows go together.

    Which root a chain has is not in its rows, so a first row is right where any of them gives its digest.
    """

    def __init__(self, roots: Sequence[bytes]) -> None:
        self._roots = list(dict.fromkeys(roots))

    def fit(self, own: bytes, under: Callable[[bytes], bytes]) -> bool:
        """Whether `own` is the digest under one of the roots."""
        for number, root in enumerate(self._roots):
            if under(root) == own:
                self._roots.insert(0, self._roots.pop(number))
                return True
        return False


def content_problems(database: Database, progress: Progress) -> Iterator[Problem]:
    """Blocks, tools, messages and media whose digest is not that of what is stored."""
    yield from _blocks(database, progress)
    roots = [digest(b"null")]
    for row in _chunks(database, _TOOLS, "tool_sets", progress):
        roots.append(bytes(row["digest"]))
        body = _readable(partial(_tools_of, row))
        if body is None or digest(body) != bytes(row["digest"]):
            yield _wrong("tool_sets", row, "the tools are not those that were stored")
    yield from _nodes(database, progress, Roots(roots))
    yield from step_problems(database, progress)
    yield from _media(database, progress)


def _blocks(database: Database, progress: Progress) -> Iterator[Problem]:
    with database.reading() as reader:
        roots = Roots([vocabulary_root(row[0]) for row in reader.execute(_VOCABULARIES)])
    for row in _chunks(database, _BLOCKS, "token_blocks", progress):
        packed = bytes(row["ids"])
        if len(packed) not in (BLOCK_SIZE * 2, BLOCK_SIZE * 3, BLOCK_SIZE * 4):
            yield _wrong("token_blocks", row, f"{len(packed)} bytes hold no {BLOCK_SIZE} ids")
            continue
        ids = unpack_ids(packed, BLOCK_SIZE).tobytes()
        own = bytes(row["digest"])
        if row["parent"] is None:
            right = roots.fit(own, partial(_block_digest, ids=ids))
        elif row["parent_digest"] is None:
            continue  # A reference that leads nowhere, which is named as such.
        else:
            right = _block_digest(bytes(row["parent_digest"]), ids) == own
        if not right:
            yield _wrong("token_blocks", row, "the ids are not those that were stored, or not under this parent")


def _nodes(database: Database, progress: Progress, roots: Roots) -> Iterator[Problem]:
    bodies = BodyReader(forgetful=True)

    def read(row: Row) -> Message:
        node = Body(row["parent"], row["coding"], row["body"])
        if not bodies.holds(node):
            with database.reading() as reader:
                bodies.path(node.parent or 0, read_nodes(reader, [node.parent or 0]))
        return read_json(bodies.body(row["pk"], node), Message)

    def uses(node: int) -> set[bytes]:
        with database.reading() as reader:
            return {bytes(row[0]) for row in reader.execute(_USES, {"node": node})}

    for row in _chunks(database, _NODES, "message_nodes", progress):
        message = _readable(partial(read, row))
        if message is None:
            yield _wrong("message_nodes", row, "the message cannot be read")
            continue
        own = bytes(row["digest"])
        depth = 0
        if row["parent"] is None:
            right = roots.fit(own, partial(exact_key, message=message))
        elif row["parent_digest"] is None:
            continue
        else:
            right = exact_key(bytes(row["parent_digest"]), message) == own
            depth = row["parent_depth"] + 1
        shown = {bytes(each) for each in media_uses_of(message)}
        if shown and shown != uses(row["pk"]):
            yield Problem(
                "reference",
                "media_uses",
                str(row["pk"]),
                "what the message shows is not what is noted of it, so its media may be collected",
                _RESTORE,
            )
        if not right:
            yield _wrong("message_nodes", row, "the message is not the one that was stored, or not under this parent")
        elif row["depth"] != depth:
            yield _wrong("message_nodes", row, f"depth is {row['depth']}, its place in the chain is {depth}")


def _media(database: Database, progress: Progress) -> Iterator[Problem]:
    above, (last,) = 0, _last(database, "media")
    while True:
        with database.reading() as reader:
            rows = reader.execute(_MEDIA, {"above": above, "limit": 1})  # One blob in memory at a time.
        if not rows:
            return
        row = rows[0]
        above = row["pk"]
        data = bytes(row["data"])
        if media_digest(data) != bytes(row["digest"]) or len(data) != row["size"]:
            yield Problem(
                "media", "media", bytes(row["digest"]).hex(), "the bytes are not those of its digest", _RESTORE
            )
        progress("media", above, last)


def _chunks(database: Database, statement: Statement, table: str, progress: Progress) -> Iterator[Row]:
    (last,) = _last(database, table)
    for above in range(0, last, ROWS):
        with database.reading() as reader:
            rows = reader.execute(statement, {"above": above, "upto": above + ROWS})
        yield from rows
        progress(table, min(above + ROWS, last), last)


def _last(database: Database, table: str) -> tuple[int]:
    with database.reading() as reader:
        return (int(reader.execute(_HIGHEST[table])[0][0]),)


def _wrong(table: str, row: Any, message: str) -> Problem:
    return Problem("hash", table, str(row["pk"]), message, _RESTORE)


def _readable(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (msgspec.MsgspecError, AgentWorldError, ValueError):
        return None


def _tools_of(row: Row) -> Any:
    return spoken_json(unpack_alone(row["coding"], row["body"]))


def _block_digest(parent: bytes, ids: bytes) -> bytes:
    return hashlib.blake2b(parent + ids, digest_size=DIGEST_SIZE).digest()
