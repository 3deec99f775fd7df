"""Reading steps with what the forests hold."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from sqlalchemy import select

from agentworld.errors import QueryError
from agentworld.pool import schema
from agentworld.pool.exact_text import read_json
from agentworld.pool.intake import check_include
from agentworld.pool.sql.bodies import Body, read_paths, unpack_alone
from agentworld.pool.sql.connections import Reader, Row, SearchTimeoutError
from agentworld.pool.sql.id_lists import Blocks, divided, sequences
from agentworld.pool.sql.lookups import among_integers, among_rows
from agentworld.pool.sql.packing import unpack_id_lists, unpack_logprob_lists, unpack_mask
from agentworld.pool.sql.rows import (
    PROMPT_IDS,
    PROMPT_MESSAGES,
    RESPONSE_IDS,
    StepRow,
    select_steps,
    step_from,
)
from agentworld.pool.sql.statements import Statement, json_list, parameter, sql
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
    told = [StepRow._make(row) for row in cast("Sequence[Iterable[Any]]", rows)]
    found = [step_from(row) for row in told]
    with_tokens, with_messages, with_logprobs = (name in include for name in ("tokens", "messages", "logprobs"))
    blocks = list({row.block for row in told if row.block is not None}) if with_tokens else []
    nodes, tools = _message_ends(told) if with_messages else ([], [])
    pieces = ((BLOCKS, blocks), (_NODES, nodes), (_TOOLS, tools))
    connection.foresee([(statement, {"ends": json_list(ends[:_CHUNK])}) for statement, ends in pieces if ends])
    if with_tokens:
        _add_ids(found, told, sequences(_read_blocks(connection, blocks), blocks))
    if with_logprobs:
        for step, logprobs in zip(found, unpack_logprob_lists([row.logprobs for row in told]), strict=True):
            step.response_logprobs = logprobs
    if with_messages:
        _add_messages(connection, found, told, nodes, tools)
    return found


def _message_ends(rows: Sequence[StepRow]) -> tuple[list[int], list[int]]:
    """The nodes that conversations end at, and the tool sets."""
    nodes = {row.prompt_node for row in rows}.union(row.reply_node for row in rows)
    tools = {row.tools for row in rows}
    return [node for node in nodes if node is not None], [tool for tool in tools if tool is not None]


def _read_blocks(connection: Reader, ends: Sequence[int]) -> Blocks:
    """Every block on the paths to the ends."""
    blocks: dict[int, tuple[int | None, bytes]] = {}
    for begin in range(0, len(ends), _CHUNK):
        parameters = {"ends": json_list(ends[begin : begin + _CHUNK])}
        for pk, parent, ids in cast("list[tuple[int, int | None, bytes]]", connection.execute(BLOCKS, parameters)):
            blocks[pk] = (parent, ids)
    return blocks


def _add_ids(found: Sequence[Step], rows: Sequence[StepRow], whole: Mapping[int | None, list[int]]) -> None:
    """Put ids and masks on the steps; a mask that is absent is all ones."""
    tails = unpack_id_lists([row.tail or b"" for row in rows], [row.id_count - len(whole[row.block]) for row in rows])
    for step, row, tail in zip(found, rows, tails, strict=True):
        has_prompt, has_response = row.present & PROMPT_IDS, row.present & RESPONSE_IDS
        if has_prompt or has_response:
            begins = row.prompt_length if has_response and has_prompt else 0 if has_response else row.id_count
            prompt, response = divided(whole[row.block], tail, begins)
            step.prompt_ids = prompt if has_prompt else None
            step.response_ids = response if has_response else None
        if row.mask is not None:
            step.response_mask = unpack_mask(row.mask).tolist()  # type: ignore[union-attr]  # None is of None alone.
        elif step.response_ids is not None:
            step.response_mask = [1] * len(step.response_ids)


def read_nodes(connection: Reader, ends: Sequence[int]) -> dict[int, Body]:
    """Every message node on the paths to the ends."""
    nodes: dict[int, Body] = {}
    for begin in range(0, len(ends), _CHUNK):
        parameters = {"ends": json_list(ends[begin : begin + _CHUNK])}
        for row in connection.execute(_NODES, parameters):
            nodes[row["pk"]] = Body(row["parent"], row["coding"], row["body"])
    return nodes


def _add_messages(
    connection: Reader, found: Sequence[Step], rows: Sequence[StepRow], ends: list[int], tool_sets: list[int]
) -> None:
    tools: dict[int, bytes] = {}
    for begin in range(0, len(tool_sets), _CHUNK):
        parameters = {"ends": json_list(tool_sets[begin : begin + _CHUNK])}
        for kept in connection.execute(_TOOLS, parameters):
            tools[kept["pk"]] = unpack_alone(kept["coding"], kept["body"])
    read: dict[bytes, Message] = {}

    def message(body: bytes) -> Message:
        if body not in read:
            read[body] = read_json(body, Message)
        return read[body]

    paths = read_paths(ends, read_nodes(connection, ends), message)
    for step, row in zip(found, rows, strict=True):
        if row.present & PROMPT_MESSAGES:
            end = row.prompt_node
            step.prompt_messages = [] if end is None else list(paths[end])
        if row.reply_node is not None:
            step.response_message = paths[row.reply_node][-1]
        if row.tools is not None:
            step.tools = read_json(tools[row.tools], list[Tool])
