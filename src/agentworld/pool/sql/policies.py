"""State that the servers of a pool share: the policies that speak, and the pause."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from agentworld.pool import rules, schema
from agentworld.pool.metric_rules import metrics_data
from agentworld.pool.sql.connections import Asked, Reader
from agentworld.pool.sql.events import Events, add_event
from agentworld.pool.sql.statements import parameter, sql
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import Metrics, Policy

PAUSED, PAUSES = "gateway.paused", "gateway.pauses"

_p = schema.policies
_KNOWN = sql(select(_p.c.version, _p.c.current).where(_p.c.model == parameter("model"), _p.c.run == parameter("run")))
_RETIRE_RUNS = sql(update(_p).where(_p.c.model == parameter("of_model")).values(current=0))
_new_policy = upsert(_p).values(model=parameter("model"), run=parameter("run"), version=parameter("version"), current=1)
_SET = sql(
    _new_policy.on_conflict_do_update(
        index_elements=["model", "run"], set_={"version": _new_policy.excluded.version, "current": 1}
    )
)
_POLICIES = sql(select(_p).where(_p.c.current == 1))
_COUNTER = sql(select(schema.counters.c.value).where(schema.counters.c.name == parameter("name")))


def set_policy(txn: Transaction, policy: Policy) -> None:
    """Publish the weights that now speak."""
    known = txn.one(_KNOWN, {"model": policy.model, "run": policy.run})
    rules.check_policy(policy, known["version"] if known else None)
    if known is not None and known["version"] == policy.version and known["current"]:
        return
    txn.execute(_RETIRE_RUNS, {"of_model": policy.model})
    txn.execute(_SET, {"model": policy.model, "run": policy.run, "version": policy.version})
    add_event(txn, "policy.set", data=msgspec.to_builtins(policy))


def add_metrics(txn: Transaction, metrics: Sequence[Metrics]) -> None:
    """Tell numbers of runs."""
    events = Events(txn)
    for each in metrics:
        events.add("metrics.added", data=metrics_data(each), channel=each.channel)
    events.write()


def current_policies(connection: Reader) -> dict[str, Policy]:
    """The policy that speaks now, by model."""
    found = connection.execute(*ask_policies())
    return {row["model"]: Policy(row["model"], row["run"], row["version"]) for row in found}


def ask_policies() -> Asked:
    """What `current_policies` asks."""
    return _POLICIES, {}


def set_paused(txn: Transaction, paused: bool) -> None:
    """Stop or resume dispatch."""
    known = txn.one(_COUNTER, {"name": PAUSED})
    before = known[0] if known else 0
    if before != int(paused):
        txn.count(PAUSED, int(paused) - before)
        if paused:
            txn.count(PAUSES)
        add_event(txn, "gateway.paused" if paused else "gateway.resumed")
