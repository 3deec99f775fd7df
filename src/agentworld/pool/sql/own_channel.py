"""The channels of what a write names, looked up in its own transaction; see pool.own_channel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from sqlalchemy import select

from agentworld.errors import AgentWorldError
from agentworld.pool import schema
from agentworld.pool.own_channel import Named, check_own
from agentworld.pool.sql.lookups import among_texts
from agentworld.pool.sql.statements import json_list, sql
from agentworld.pool.sql.transaction import Transaction
from agentworld.pool.sql.writer import Together, Writer

P = TypeVar("P")
T = TypeVar("T")
_t, _g, _s = schema.trajectories.c, schema.groups.c, schema.steps.c
_CHANNELS = {
    "trajectory": sql(select(_t.trajectory_id.label("id"), _t.channel).where(among_texts(_t.trajectory_id, "ids"))),
    "group": sql(select(_g.group_id.label("id"), _g.channel).where(among_texts(_g.group_id, "ids"))),
    "step": sql(select(_s.step_id.label("id"), _s.channel).where(among_texts(_s.step_id, "ids"))),
}


def check_named(txn: Transaction, channel: str, named: Named) -> None:
    """ForbiddenError where something named is of another channel."""
    found: dict[tuple[str, str], str] = {}
    for kind, ids in (("trajectory", named.trajectories), ("group", named.groups), ("step", named.steps)):
        if ids:
            rows = txn.execute(_CHANNELS[kind], {"ids": json_list(sorted(ids))})
            found |= {(kind, row["id"]): row["channel"] for row in rows}
    check_own(channel, named, found)


def submit_own(
    writer: Writer,
    together: Together[P, T],
    payload: P,
    weight: int,
    channel: str | None,
    named: Callable[[], Named],
) -> Future[T]:
    """`writer.submit_together`; with a channel after a look at what is named, in the same transaction."""
    if channel is None:
        return writer.submit_together(together, payload, weight)
    asked, sent = named(), [payload]

    def operation(txn: Transaction) -> T:
        check_named(txn, channel, asked)
        outcomes: Sequence[T | AgentWorldError] = together(txn, sent)
        if isinstance(outcomes[0], AgentWorldError):
            raise outcomes[0]
        return outcomes[0]

    return writer.submit(operation)
