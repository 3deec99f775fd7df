"""How much the pool stores, in bytes of content: what retention by size goes by, on every engine alike.

It is what the columns hold that grow with the data, without what an engine adds or has free: a file does not shrink
when rows are deleted, so its size would name the same trajectories again and again.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, select

from agentworld.pool import schema
from agentworld.pool.sql.connections import Reader
from agentworld.pool.sql.statements import Statement, parameter, sql

ROW_BYTES = 100  # of a row beside its content, about
_RANGE = 50_000  # rows that one look measures
_CONTENT: dict[str, tuple[Any, ...]] = {
    "steps": (
        schema.steps.c.tail,
        schema.steps.c.logprobs,
        schema.steps.c.mask,
        schema.steps.c.metadata,
        schema.steps.c.call,
    ),
    "token_blocks": (schema.token_blocks.c.ids,),
    "message_nodes": (schema.message_nodes.c.body,),
    "tool_sets": (schema.tool_sets.c.body,),
    "exchanges": (schema.exchanges.c.record,),
    "annotations": (schema.annotation_arrays.c.data,),
    "trajectories": (schema.trajectories.c.task, schema.trajectories.c.metadata),
}


def _statements() -> list[tuple[Statement, Statement]]:
    found = []
    for name, columns in _CONTENT.items():
        table = schema.metadata.tables[name]
        length: Any = ROW_BYTES
        for column in columns:
            length = length + func.coalesce(func.length(column), 0)
        within = (table.c.pk > parameter("above"), table.c.pk <= parameter("upto"))
        found.append(
            (
                sql(select(func.coalesce(func.max(table.c.pk), 0))),
                sql(select(func.coalesce(func.sum(length), 0)).where(*within)),
            )
        )
    return found


_MEASURED = _statements()
_MEDIA = sql(select(func.coalesce(func.sum(schema.media.c.size), 0)))


def content_bytes(reader: Reader) -> int:
    """Bytes of content in the pool, media outside of it included."""
    total = int(reader.execute(_MEDIA)[0][0])
    for highest, measure in _MEASURED:
        last = reader.execute(highest)[0][0]
        for above in range(0, last, _RANGE):
            total += int(reader.execute(measure, {"above": above, "upto": above + _RANGE})[0][0])
    return total
