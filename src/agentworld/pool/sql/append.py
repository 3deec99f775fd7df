"""Appending exchanges and steps, and whole trajectories; all that one transaction brings is written together."""

from __future__ import annotations

from collections.abc import Sequence

from agentworld.errors import AgentWorldError
from agentworld.pool.protocol import AppendResult
from agentworld.pool.sql.append_batch import Batch
from agentworld.pool.sql.append_intake import Payload, PreparedExchange, refused
from agentworld.pool.sql.forests import ForestWriter
from agentworld.pool.sql.tally import Tallies
from agentworld.pool.sql.transaction import Mark, Transaction
from agentworld.pool.sql.whole_batch import WholeBatch


class Appender:
    """Writes steps; used by the writing thread only."""

    def __init__(self) -> None:
        self._forests = ForestWriter()
        self._tallies = Tallies()
        self._mark: Mark | None = None  # the pool as the latest `append_all` left it

    def append_all(self, txn: Transaction, payloads: Sequence[Payload]) -> list[list[AppendResult] | AgentWorldError]:
        """Each payload's results, or why it was refused as a whole."""
        undisturbed = self._mark is not None and txn.is_at(self._mark)
        self._mark = None  # What is planned from here on is nowhere until it is written.
        batch = Batch(txn, self._forests, self._tallies, undisturbed)
        batch.load(payloads)
        outcomes: list[list[AppendResult] | AgentWorldError] = []
        for payload in payloads:
            try:
                if isinstance(payload, PreparedExchange):
                    misplaced = batch.add_exchange(payload)
                    payload = payload.steps if misplaced is None else refused(payload.steps, misplaced)
                outcomes.append([batch.add(taken) for taken in payload])
            except AgentWorldError as error:
                outcomes.append(error)
        self._mark = batch.write()
        txn.on_rollback(self._forget)
        return outcomes

    def whole(self, txn: Transaction) -> WholeBatch:
        """What begins to plan trajectories that are whole; nothing is known of what it writes afterwards."""
        self._mark = None
        return WholeBatch(txn, self._forests, self._tallies)

    def _forget(self) -> None:
        self._mark = None
