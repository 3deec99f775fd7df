"""Checking a pool: hashes along the chains, counts, references, sequences. What is wrong is named; nothing is changed.

Everything is looked at in ranges of primary keys, each in a short read transaction of its own, so that memory stays
flat and writers go on; what must be seen at one moment (the counters) is one transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Table, func, select

from agentworld.pool import schema
from agentworld.pool.keeping.records import Problem, Progress
from agentworld.pool.sql.check_content import content_problems
from agentworld.pool.sql.check_datasets import dataset_problems
from agentworld.pool.sql.check_decisions import decision_problems
from agentworld.pool.sql.check_rows import (
    effective_problems,
    row_problems,
    sequence_problems,
    target_problems,
    word_problems,
)
from agentworld.pool.sql.check_state import state_problems
from agentworld.pool.sql.connections import Database, Reader
from agentworld.pool.sql.recount import recount, stored_counters
from agentworld.pool.sql.statements import Statement, parameter, sql

ROWS = 20_000  # that one look at references spans
MAX_OF_A_KIND = 100  # problems that one look names

_RESTORE = "Restore the pool from a backup, or export what is sound and import it into a new pool"


def check(database: Database, progress: Progress, deep: bool) -> list[Problem]:
    """All problems; `deep`: hashes too, which reads all content."""
    found: list[Problem] = []
    found.extend(_counters(database, progress))
    found.extend(_keys(database))
    found.extend(_references(database, progress))
    found.extend(state_problems(database, progress))
    found.extend(sequence_problems(database))
    found.extend(word_problems(database))
    found.extend(target_problems(database))
    found.extend(decision_problems(database, progress, deep))
    found.extend(dataset_problems(database, progress, deep))
    if deep:
        found.extend(row_problems(database, progress))
        found.extend(effective_problems(database))
        found.extend(content_problems(database, progress))
    return found


def _counters(database: Database, progress: Progress) -> Iterator[Problem]:
    progress("counters", 0, 1)
    with database.reading() as reader:
        kept, counted = stored_counters(reader), recount(reader)
    for name in sorted(kept.keys() | counted.keys()):
        if kept.get(name, 0) != counted.get(name, 0):
            message = f"the counter {name} is {kept.get(name, 0)}, but there are {counted.get(name, 0)}"
            hint = "Statistics are off, the records are whole: import an export into a new pool to count anew"
            yield Problem("count", "counters", name, message, hint)
    progress("counters", 1, 1)


# --- primary keys and the sequence of events --------------------------------------------------------------------
_KEYED = [table for table in schema.metadata.sorted_tables if "pk" in table.c]
_HIGHEST = {table.name: sql(select(func.coalesce(func.max(table.c.pk), 0))) for table in _KEYED}
_ALLOTTED = sql(select(schema.counters.c.name, schema.counters.c.value))
_e = schema.events.c
_EVENTS = sql(select(func.count(), func.coalesce(func.min(_e.pk), 0), func.coalesce(func.max(_e.pk), 0)))


def _keys(database: Database) -> Iterator[Problem]:
    with database.reading() as reader:
        allotted = {row[0]: row[1] for row in reader.execute(_ALLOTTED)}
        highest = {name: reader.execute(statement)[0][0] for name, statement in _HIGHEST.items()}
        events = reader.execute(_EVENTS)[0]
    count, first, last = int(events[0]), int(events[1]), int(events[2])
    for name, number in highest.items():
        if number > allotted.get(f"pk.{name}", 0):
            message = f"row {number} of {name} is over {allotted.get(f'pk.{name}', 0)}, the last one that was allotted"
            yield Problem("sequence", name, str(number), message, "Another program wrote to the pool. " + _RESTORE)
    if count and count != last - first + 1:
        message = f"{last - first + 1 - count} events between {first} and {last} are missing"
        hint = "Followers have missed them; compare with the trajectories themselves"
        yield Problem("sequence", "events", str(first), message, hint)


# --- references -------------------------------------------------------------------------------------------------
def _reference_sql(table: Table, column: Any, parent: Any) -> tuple[Any, Statement]:
    other = parent.table.alias("other")
    key = table.c.pk if "pk" in table.c else next(iter(table.primary_key.columns))
    statement = (
        select(key, column.label("names"))
        .outerjoin_from(table, other, other.c[parent.name] == column)
        .where(column.is_not(None), other.c[parent.name].is_(None))
        .limit(parameter("limit"))
    )
    if "pk" in table.c:
        statement = statement.where(table.c.pk > parameter("above"), table.c.pk <= parameter("upto"))
    return table, sql(statement)


def _all_references() -> list[tuple[Table, str, str, Statement]]:
    found = []
    declared = [
        (table, key.parent, key.column) for table in schema.metadata.sorted_tables for key in table.foreign_keys
    ]
    kept_by_us = [
        (schema.token_blocks, schema.token_blocks.c.parent, schema.token_blocks.c.pk),
        (schema.message_nodes, schema.message_nodes.c.parent, schema.message_nodes.c.pk),
        (schema.steps, schema.steps.c.trajectory, schema.trajectories.c.pk),
        (schema.steps, schema.steps.c.block, schema.token_blocks.c.pk),
        (schema.steps, schema.steps.c.prompt_node, schema.message_nodes.c.pk),
        (schema.steps, schema.steps.c.reply_node, schema.message_nodes.c.pk),
        (schema.steps, schema.steps.c.tools, schema.tool_sets.c.pk),
        (schema.exchanges, schema.exchanges.c.trajectory, schema.trajectories.c.pk),
        (schema.trajectories, schema.trajectories.c.last_step, schema.steps.c.pk),
        (schema.batch_units, schema.batch_units.c.batch, schema.batches.c.pk),
        (schema.media_uses, schema.media_uses.c.node, schema.message_nodes.c.pk),
        (schema.backlog, schema.backlog.c.consumer, schema.consumers.c.name),
    ]
    seen = set()
    for table, column, parent in [*declared, *kept_by_us]:
        if (table.name, column.name) in seen:
            continue
        seen.add((table.name, column.name))
        found.append((table, column.name, parent.table.name, _reference_sql(table, column, parent)[1]))
    return found


_REFERENCES = _all_references()


def _references(database: Database, progress: Progress) -> Iterator[Problem]:
    for number, (table, column, parent, statement) in enumerate(_REFERENCES):
        progress("references", number, len(_REFERENCES))
        for bound in _ranges(database, table):
            with database.reading() as reader:
                rows = reader.execute(statement, {**bound, "limit": MAX_OF_A_KIND})
            for row in rows:
                message = f"{column} names row {row['names']} of {parent}, which is not there"
                yield Problem("reference", table.name, str(row[0]), message, _RESTORE)
    progress("references", len(_REFERENCES), len(_REFERENCES))


def _ranges(database: Database, table: Table) -> Iterator[dict[str, int]]:
    if "pk" not in table.c:
        yield {}
        return
    with database.reading() as reader:
        last = _last(reader, table.name)
    for above in range(0, last, ROWS):
        yield {"above": above, "upto": above + ROWS}


def _last(reader: Reader, table: str) -> int:
    return int(reader.execute(_HIGHEST[table])[0][0])
