"""Reading steps with what the forests hold, and pages of steps and trajectories."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import msgspec
import numpy as np
from sqlalchemy import func, select

from agentworld.errors import QueryError
from agentworld.forest import BLOCK_SIZE, TokenArray
from agentworld.pool import schema
from agentworld.pool.base import check_limit, cursor_for, read_cursor
from agentworld.pool.intake import check_include, restore_arrays
from agentworld.pool.sql.connections import Reader, Row, SearchTimeoutError
from agentworld.pool.sql.packing import unpack_ids, unpack_logprobs, unpack_mask
from agentworld.pool.sql.rows import (
    PROMPT_IDS,
    PROMPT_MESSAGES,
    RESPONSE_IDS,
    select_steps,
    select_trajectories,
    step_from,
)
from agentworld.pool.sql.statements import Statement, compiled, integers, json_list, parameter, sql
from agentworld.pool.sql.where import NOW, condition
from agentworld.query import Subject, parse
from agentworld.records import Message, Step

SCAN_ROWS = 100_000  # rows that one page with `where` looks at
WHERE_SECONDS = 5.0  # that one search with `where` may take
_CHUNK = 500  # rows named in one query

_b, _n, _tools = schema.token_blocks, schema.message_nodes, schema.tool_sets
_message = msgspec.json.Decoder(Message)


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
    """All rows on the paths from the named rows to their roots, each once."""
    ends = select(table.c.pk).where(table.c.pk.in_(integers("ends")))
    paths = ends.cte("paths", recursive=True)
    paths = paths.union(select(table.c.parent).where(table.c.pk == paths.c.pk, table.c.parent.is_not(None)))
    return sql(select(*columns).join_from(paths, table, table.c.pk == paths.c.pk))


_BLOCKS = _chain_sql(_b, [_b.c.pk, _b.c.parent, _b.c.ids])
_NODES = _chain_sql(_n, [_n.c.pk, _n.c.parent, _n.c.body])
_TOOLS = sql(select(_tools.c.pk, _tools.c.body).where(_tools.c.pk.in_(integers("ends"))))
_NEWEST: dict[Subject, Statement] = {
    "steps": sql(select(func.coalesce(func.max(schema.steps.c.pk), 0))),
    "trajectories": sql(select(func.coalesce(func.max(schema.trajectories.c.pk), 0))),
}
STEP = sql(select_steps().where(schema.steps.c.step_id == parameter("id")))


def read_steps(connection: Reader, rows: Sequence[Row], include: Sequence[str]) -> list[Step]:
    """The rows of select_steps as records, with what `include` asks for; shared content is read once."""
    check_include(include)
    found = [step_from(row) for row in rows]
    sequences: dict[int | None, list[bytes]] = {}
    if "tokens" in include:
        sequences = _paths(connection, _BLOCKS, {row["block"] for row in rows}, "ids")
    for step, row in zip(found, rows, strict=True):
        logprobs = unpack_logprobs(row["logprobs"]) if "logprobs" in include else None
        prompt = response = mask = None
        if "tokens" in include:
            prompt, response = _split(row, _ids(row, sequences[row["block"]]))
            mask = unpack_mask(row["mask"])
        restore_arrays(step, prompt, response, mask, logprobs, include)
    if "messages" in include:
        _add_messages(connection, found, rows)
    return found


@functools.lru_cache(maxsize=256)
def _page_sql(subject: Subject, where: str | None, filters: tuple[str, ...], order: str) -> Statement:
    # Cached by the text, since the trees of `x == 1` and `x == true` are equal to Python.
    table = schema.steps if subject == "steps" else schema.trajectories
    columns: dict[str, Any] = {
        "trajectory_id": schema.trajectories.c.trajectory_id,
        "group_id": schema.trajectories.c.group_id,
        "channel": table.c.channel,
    }
    statement = select_steps() if subject == "steps" else select_trajectories()
    statement = statement.where(
        *(columns[name] == parameter(name) for name in filters),
        table.c.pk > parameter("above"),
        table.c.pk < parameter("below"),
    )
    if where is not None:
        statement = statement.where(condition(parse(where, subject), subject))
    ordered = table.c.pk.desc() if order == "newest" else table.c.pk.asc()
    return compiled(statement.order_by(ordered).limit(parameter("limit")))


def page_of_rows(
    connection: Reader,
    subject: Subject,
    where: str | None,
    filters: dict[str, str | None],
    order: Literal["oldest", "newest"],
    cursor: str | None,
    limit: int,
    now: float,
) -> tuple[list[Row], str | None]:
    """One page of rows and the cursor of the next; `now` is what `where` means by it."""
    check_limit(limit)
    after = read_cursor(cursor, order)
    given = {name: value for name, value in filters.items() if value is not None}
    statement = _page_sql(subject, where, tuple(given), order)
    above, below = 0, 2**62
    if after is not None:
        above, below = (after, below) if order == "oldest" else (above, after)
    stop = None
    if where is not None:
        above, below, stop = _scanned(connection, subject, order, above, below)
    bound = {**given, "above": above, "below": below, "limit": limit + 1, NOW: now}
    with bounded_search(connection, where):
        rows = connection.execute(statement, bound)
    if len(rows) > limit:
        return rows[:limit], cursor_for(rows[limit - 1]["pk"], order)
    return rows, None if stop is None else cursor_for(stop, order)


def _scanned(connection: Reader, subject: Subject, order: str, above: int, below: int) -> tuple[int, int, int | None]:
    """Narrow the range to what one page may look at; the last value is where the next page goes on, if any."""
    newest = connection.execute(_NEWEST[subject])[0][0]
    below = min(below, newest + 1)
    if below - above - 1 <= SCAN_ROWS:
        return above, below, None
    if order == "oldest":
        below = above + SCAN_ROWS + 1
        return above, below, below - 1
    above = below - SCAN_ROWS - 1
    return above, below, above + 1


def _paths(
    connection: Reader, statement: Statement, ends: Iterable[int | None], column: str
) -> dict[int | None, list[bytes]]:
    """For each end, the column's values from the root down to it."""
    rows: dict[int, tuple[int | None, bytes]] = {}
    wanted = [end for end in set(ends) if end is not None]
    for begin in range(0, len(wanted), _CHUNK):
        parameters = {"ends": json_list(wanted[begin : begin + _CHUNK])}
        for row in connection.execute(statement, parameters):
            rows[row["pk"]] = (row["parent"], row[column])
    paths: dict[int | None, list[bytes]] = {None: []}
    for end in wanted:
        path = []
        at: int | None = end
        while at is not None:
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


def _add_messages(connection: Reader, found: Sequence[Step], rows: Sequence[Row]) -> None:
    ends = {row[name] for row in rows for name in ("prompt_node", "reply_node")}
    paths = _paths(connection, _NODES, ends, "body")
    tools: dict[int, bytes] = {}
    wanted = list({row["tools"] for row in rows if row["tools"] is not None})
    for begin in range(0, len(wanted), _CHUNK):
        parameters = {"ends": json_list(wanted[begin : begin + _CHUNK])}
        tools.update((row["pk"], row["body"]) for row in connection.execute(_TOOLS, parameters))
    read: dict[bytes, Message] = {}

    def message(body: bytes) -> Message:
        if body not in read:
            read[body] = _message.decode(body)
        return read[body]

    for step, row in zip(found, rows, strict=True):
        if row["present"] & PROMPT_MESSAGES:
            step.prompt_messages = [message(body) for body in paths[row["prompt_node"]]]
        if row["reply_node"] is not None:
            step.response_message = message(paths[row["reply_node"]][-1])
        if row["tools"] is not None:
            step.tools = msgspec.json.decode(tools[row["tools"]])
