"""State that the servers of a pool share, and the counters."""

from __future__ import annotations

from sqlalchemy import func, select

from agentworld.forest import BLOCK_SIZE
from agentworld.pool import schema
from agentworld.pool.results import GatewayState, PoolStats
from agentworld.pool.sql import signals
from agentworld.pool.sql.statements import sql
from agentworld.pool.sql.store_base import SqlStore
from agentworld.records import Policy

_COUNTERS = sql(select(schema.counters))
_LAST_EVENT = sql(select(func.coalesce(func.max(schema.events.c.pk), 0)))


class StateMethods(SqlStore):
    """Policies, the pause, statistics."""

    def set_policy(self, policy: Policy) -> Policy:
        """See Pool."""
        self._writer.submit(lambda txn: signals.set_policy(txn, policy)).result()
        return policy

    def set_paused(self, paused: bool) -> None:
        """See Pool."""
        self._writer.submit(lambda txn: signals.set_paused(txn, paused)).result()

    def gateway_state(self) -> GatewayState:
        """See Pool."""
        with self._database.reading() as connection:
            policies = signals.current_policies(connection)
            counters = {row["name"]: row["value"] for row in connection.execute(_COUNTERS)}
        return GatewayState(policies, bool(counters.get(signals.PAUSED)))

    def stats(self) -> PoolStats:
        """See Pool."""
        with self._database.reading() as connection:
            counters: dict[str, int] = {row["name"]: row["value"] for row in connection.execute(_COUNTERS)}
            last_event = connection.execute(_LAST_EVENT)[0][0]

        def named(prefix: str) -> dict[str, int]:
            found = {name.removeprefix(prefix): n for name, n in counters.items() if name.startswith(prefix)}
            return {name: number for name, number in found.items() if number}

        return PoolStats(
            trajectories=named("trajectories."),
            steps=counters.get("steps", 0),
            exchanges=counters.get("exchanges", 0),
            excluded_steps=counters.get("steps.excluded", 0),
            tokens_flat=counters.get("tokens_flat", 0),
            tokens_stored=counters.get("blocks", 0) * BLOCK_SIZE + counters.get("tokens_in_tails", 0),
            message_nodes=counters.get("message_nodes", 0),
            rewards=counters.get("rewards", 0),
            batches=named("batches."),
            last_event=last_event,
            failed_exchanges=counters.get("exchanges.error", 0),
            dead_letters=counters.get("dead_letters", 0),
        )
