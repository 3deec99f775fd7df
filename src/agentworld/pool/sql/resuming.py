"""What the return of a consumer does to its batches, a short transaction at a time."""

from __future__ import annotations

import time
from collections.abc import Collection

from agentworld.pool.sql import batch_rows
from agentworld.pool.sql.batch_rows import end_batch
from agentworld.pool.sql.transaction import Transaction

_SECONDS = 0.01  # of one transaction
_SETTLED_AT_ONCE = 128


def release_held(txn: Transaction, consumer: str, spared: Collection[str]) -> list[str]:
    """Release batches of the consumer but the spared, for a short while; none once there is none left."""
    until = time.perf_counter() + _SECONDS
    released: list[str] = []
    for row in batch_rows.held(txn, consumer):
        if row["batch_id"] in spared:
            continue
        end_batch(txn, row, "released")
        released.append(row["batch_id"])
        if time.perf_counter() > until:
            break
    return released


def acknowledge(
    txn: Transaction, consumer: str, named: list[str], spared: Collection[str]
) -> tuple[list[str], list[str]]:
    """Acknowledge the first of the batches, for a short while; returns these and those that are not there.

    Another worker of the consumer may have leased their units anew since those that it held were released.
    """
    until = time.perf_counter() + _SECONDS
    named = named[:_SETTLED_AT_ONCE]
    rows = batch_rows.by_ids(txn, named)
    settled: list[str] = []
    unknown: list[str] = []
    for batch_id in named:
        row = rows.get(batch_id)
        if row is None or row["consumer"] != consumer:
            unknown.append(batch_id)
            continue
        if row["state"] != "acked":
            for other in batch_rows.holders(txn, row):
                if other["batch_id"] not in spared:
                    end_batch(txn, other, "released")
            end_batch(txn, row, "acked")
        settled.append(batch_id)
        if time.perf_counter() > until:
            break
    return settled, unknown
