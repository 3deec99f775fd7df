"""Reading steps with what the forests hold."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from sqlalchemy import select

from agentworld.errors import PoolError, QueryError
from agentworld.forest import BLOCK_SIZE, TokenArray
from agentworld.pool import schema
from agentworld.pool.exact_text import read_json
from agentworld.pool.intake import check_include
from agentworld.pool.sql.bodies import Body, read_paths, unpack_alone
from agentworld.pool.sql.connections import Reader, Row, SearchTimeoutError
from agentworld.pool.sql.lookups import among_integers, among_rows
from agentworld.pool.sql.packing import unpack_ids, unpack_logprobs, unpack_mask
from agentworld.pool.sql.rows import (
    PROMPT_IDS,
    PROMPT_MESSAGES,
    RESPONSE_IDS,
    select_steps,
    step_from,
)
from agentworld.pool.sql.statements import Statement, json_list, parameter, sql
from agentworld.pool.step_arrays import restore_arrays
from agentworld.records import Message, Step, Tool

SCAN_ROWS = 100_000  # rows that one page with `where` looks at
WHERE_SECONDS = 5.0  # that one search with `where` may take
_CHUNK = 500  # rows named in one query

_b, _n, _tools = schema.token_blocks, schema.message_nodes, schema.tool_sets


@contextlib.contextmanager
def bounded_search(connection: Reader, where: str | None) -> Iterator[None]:
    """QueryError where the statements inside take longer than WHERE_SECONDS; unbounded without `where`."""
    if where is None:
        yield
        return
    try:
        with connection.limited(WHERE_SECONDS):
            yield
    except SearchTimeoutError:
        raise QueryError(
            f"the search with where took longer than {WHERE_SECONDS:g} s",
            path="where",
            hint="Narrow it: filter by trajectory, group or channel, use fewer conditions, or fields without a key",
        ) from None


def _chain_sql(table: Any, columns: Sequence[Any]) -> Statement:
    """All rows on the paths from the named rows to their roots, each once.

    Each step up is a look-up: as a join, PostgreSQL, which cannot tell how long paths are, reads the whole table.
    """
    paths = select(table.c.pk).where(among_integers(table.c.pk, "ends")).cte("paths", recursive=True)
    parent = select(table.c.parent).where(table.c.pk == paths.c.pk).correlate(paths).scalar_subquery()
    paths = paths.union(select(parent).where(paths.c.pk.is_not(None)))
    return sql(select(*columns).where(among_rows(table.c.pk, select(paths.c.pk))))


BLOCKS = _chain_sql(_b, [_b.c.pk, _b.c.parent, _b.c.ids])
_NODES = _chain_sql(_n, [_n.c.pk, _n.c.parent, _n.c.body, _n.c.coding])
_TOOLS = sql(select(_tools.c.pk, _tools.c.body, _tools.c.coding).where(among_integers(_tools.c.pk, "ends")))
STEP = sql(select_steps().where(schema.steps.c.step_id == parameter("id")))


def read_steps(connection: Reader, rows: Sequence[Row], include: Sequence[str]) -> list[Step]:
    """The rows of select_steps as records, with what `include` asks for; shared content is read once."""
    check_include(include)
    found = [step_from(row) for row in rows]
    blocks = _ends(rows, "block") if "tokens" in include else []
    nodes = _ends(rows, "prompt_node", "reply_node") if "messages" in include else []
    tools = _ends(rows, "tools") if "messages" in include else []
    pieces = ((BLOCKS, blocks), (_NODES, nodes), (_TOOLS, tools))
    connection.foresee([(statement, {"ends": json_list(ends[:_CHUNK])}) for statement, ends in pieces if ends])
    sequences = _paths(connection, BLOCKS, blocks, "ids")
    for step, row in zip(found, rows, strict=True):
        logprobs = unpack_logprobs(row["logprobs"]) if "logprobs" in include else None
        prompt = response = mask = None
        if "tokens" in include:
            prompt, response = _split(row, _ids(row, sequences[row["block"]]))
            mask = unpack_mask(row["mask"])
        restore_arrays(step, prompt, response, mask, logprobs, include)
    if "messages" in include:
        _add_messages(connection, found, rows, nodes, tools)
    return found


def _ends(rows: Sequence[Row], *columns: str) -> list[int]:
    return list({row[name] for row in rows for name in columns if row[name] is not None})


def _paths(
    connection: Reader, statement: Statement, wanted: Sequence[int], column: str
) -> dict[int | None, list[bytes]]:
    """For each end, the column's values from the root down to it."""
    rows: dict[int, tuple[int | None, bytes]] = {}
    for begin in range(0, len(wanted), _CHUNK):
        parameters = {"ends": json_list(wanted[begin : begin + _CHUNK])}
        for row in connection.execute(statement, parameters):
            rows[row["pk"]] = (row["parent"], row[column])
    paths: dict[int | None, list[bytes]] = {None: []}
    for end in wanted:
        path = []
        at: int | None = end
        while at is not None:
            if at not in rows:
                raise PoolError(
                    f"the pool is damaged: row {at}, which others build on, is missing",
                    hint="Restore it from a backup; `agentworld pool check` names all that is wrong",
                )
            at, value = rows[at]
            path.append(value)
        path.reverse()
        paths[end] = path
    return paths


def _ids(row: Row, blocks: list[bytes]) -> TokenArray | None:
    if not row["present"] & (PROMPT_IDS | RESPONSE_IDS):
        return None
    if len({len(block) for block in blocks}) == 1:  # Nearly always; one conversion instead of one a block.
        parts = [unpack_ids(b"".join(blocks), BLOCK_SIZE * len(blocks))]
    else:
        parts = [unpack_ids(block, BLOCK_SIZE) for block in blocks]
    parts.append(unpack_ids(row["tail"], row["id_count"] - BLOCK_SIZE * len(blocks)))
    return np.concatenate(parts)


def _split(row: Row, ids: TokenArray | None) -> tuple[TokenArray | None, TokenArray | None]:
    if ids is None:
        return None, None
    present = row["present"]
    if not present & PROMPT_IDS:
        return None, ids
    if not present & RESPONSE_IDS:
        return ids, None
    return ids[: row["prompt_length"]], ids[row["prompt_length"] :]


def read_nodes(connection: Reader, ends: Sequence[int]) -> dict[int, Body]:
    """Every message node on the paths to the ends."""
    nodes: dict[int, Body] = {}
    for begin in range(0, len(ends), _CHUNK):
        parameters = {"ends": json_list(ends[begin : begin + _CHUNK])}
        for row in connection.execute(_NODES, parameters):
            nodes[row["pk"]] = Body(row["parent"], row["coding"], row["body"])
    return nodes


def _add_messages(
    connection: Reader, found: Sequence[Step], rows: Sequence[Row], ends: list[int], tool_sets: list[int]
) -> None:
    tools: dict[int, bytes] = {}
    for begin in range(0, len(tool_sets), _CHUNK):
        parameters = {"ends": json_list(tool_sets[begin : begin + _CHUNK])}
        for row in connection.execute(_TOOLS, parameters):
            tools[row["pk"]] = unpack_alone(row["coding"], row["body"])
    read: dict[bytes, Message] = {}

    def message(body: bytes) -> Message:
        if body not in read:
            read[body] = read_json(body, Message)
        return read[body]

    paths = read_paths(ends, read_nodes(connection, ends), message)
    for step, row in zip(found, rows, strict=True):
        if row["present"] & PROMPT_MESSAGES:
            end = row["prompt_node"]
            step.prompt_messages = [] if end is None else list(paths[end])
        if row["reply_node"] is not None:
            step.response_message = paths[row["reply_node"]][-1]
        if row["tools"] is not None:
            step.tools = read_json(tools[row["tools"]], list[Tool])
