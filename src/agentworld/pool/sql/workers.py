"""What the worker processes of gateways say of themselves."""

from __future__ import annotations

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert as upsert

from agentworld.pool import schema
from agentworld.pool.draining import KEPT_SECONDS
from agentworld.pool.results import GatewayWorker
from agentworld.pool.sql.connections import Reader
from agentworld.pool.sql.policies import PAUSED
from agentworld.pool.sql.statements import parameter, sql
from agentworld.pool.sql.transaction import Transaction

_w = schema.gateway_workers
_NAMES = ("worker", "in_flight", "pauses", "seen_at")
_new = upsert(_w).values({name: parameter(name) for name in _NAMES})
_REPORT = sql(
    _new.on_conflict_do_update(
        index_elements=["worker"], set_={name: getattr(_new.excluded, name) for name in _NAMES[1:]}
    )
)
_FORGET = sql(delete(_w).where(_w.c.worker == parameter("of_worker")))
_FORGET_SILENT = sql(delete(_w).where(_w.c.seen_at < parameter("before")))
_ALL = sql(select(_w).order_by(_w.c.worker))


def report(txn: Transaction, worker: str, in_flight: int, pauses: int) -> None:
    """Note a worker's word, and forget those who have been silent for long; not during a pause, as whoever waits for
    all to drain must not lose sight of one.
    """
    txn.execute(_REPORT, {"worker": worker, "in_flight": in_flight, "pauses": pauses, "seen_at": txn.now})
    if not txn.counter(PAUSED):
        txn.execute(_FORGET_SILENT, {"before": txn.now - KEPT_SECONDS})


def forget(txn: Transaction, worker: str) -> None:
    """A worker ends."""
    txn.execute(_FORGET, {"of_worker": worker})


def last_words(reader: Reader) -> list[GatewayWorker]:
    """What each said last."""
    found = reader.execute(_ALL, {})
    return [GatewayWorker(*(row[name] for name in _NAMES)) for row in found]
