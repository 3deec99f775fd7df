"""The statements of appending, compiled before the first append of a process waits for the pool's lock."""

from __future__ import annotations

import functools

from agentworld.pool import schema
from agentworld.pool.sql import append_rows, forests, pieces, tally, trajectories, transaction
from agentworld.pool.sql.statements import EngineName, Statement


@functools.cache
def compile_all(engine: EngineName) -> None:
    """Compile for `engine` what nearly every append needs, once; it takes some 10 ms, in which nobody must wait."""
    found: list[Statement] = [*append_rows.STATEMENTS, *tally.STATEMENTS, *forests.STATEMENTS]
    found += [*trajectories.STATEMENTS, *transaction.STATEMENTS]
    found += [pieces.finder(schema.token_blocks), pieces.finder(schema.message_nodes)]
    found += [pieces.finder(schema.tool_sets, rooted=False)]
    for statement in found:
        statement.text(engine)
