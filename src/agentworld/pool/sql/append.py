"""Appending exchanges and steps, and whole trajectories; all that one transaction brings is written together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentworld.errors import AgentWorldError
from agentworld.pool.protocol import AppendResult
from agentworld.pool.sql.append_batch import Batch
from agentworld.pool.sql.append_intake import Payload, PreparedExchange, refused
from agentworld.pool.sql.forests import ForestWriter
from agentworld.pool.sql.tally import Tallies
from agentworld.pool.sql.transaction import Mark, Transaction
from agentworld.pool.sql.whole_batch import WholeBatch

PART = 64  # records after which an engine that works ahead gets what is planned


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
        txn.on_rollback(self._forget)
        parts = list(_parts(payloads)) if txn.connection.works_ahead else [payloads]
        outcomes: list[list[AppendResult] | AgentWorldError] = []
        batch: Batch | None = None
        for number, part in enumerate(parts, 1):
            before, batch = batch, Batch(txn, self._forests, self._tallies, undisturbed)
            if before is None:
                batch.load(payloads)
            else:
                batch.go_on(before, payloads)
            outcomes += [_plan(batch, payload) for payload in part]
            self._mark = batch.write(goes_on=number < len(parts))
            undisturbed = txn.is_at(self._mark)
        return outcomes

    def whole(self, txn: Transaction) -> WholeBatch:
        """What begins to plan trajectories that are whole; nothing is known of what it writes afterwards."""
        self._mark = None
        return WholeBatch(txn, self._forests, self._tallies)

    def _forget(self) -> None:
        self._mark = None


def _plan(batch: Batch, payload: Payload) -> list[AppendResult] | AgentWorldError:
    try:
        if isinstance(payload, PreparedExchange):
            misplaced = batch.add_exchange(payload)
            payload = payload.steps if misplaced is None else refused(payload.steps, misplaced)
        return [batch.add(taken) for taken in payload]
    except AgentWorldError as error:
        return error


def _parts(payloads: Sequence[Payload]) -> Iterator[Sequence[Payload]]:
    """Payloads in a row that have PART records together, and the rest."""
    begin = records = 0
    for number, payload in enumerate(payloads, 1):
        records += 1 + len(payload.steps) if isinstance(payload, PreparedExchange) else len(payload)
        if records >= PART or number == len(payloads):
            yield payloads[begin:number]
            begin, records = number, 0
