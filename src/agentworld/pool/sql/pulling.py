"""Bringing a consumer's backlog up to date, chunk by chunk."""

from __future__ import annotations

from agentworld.pool.sql import backlog, pairs
from agentworld.pool.sql.backlog import READY, Position, Scope
from agentworld.pool.sql.connections import Reader
from agentworld.pool.sql.transaction import Transaction
from agentworld.pool.sql.units import Plan

_FEEDBACK = "feedback"


def is_behind(reader: Reader, plan: Plan) -> bool:
    """Whether something that the plan's backlog does not know became fit to be served."""
    scope = plan.scope
    if backlog.latest(reader, READY) > backlog.position(reader, scope).ready_seq:
        return True
    if scope.unit != "pair":
        return False
    return backlog.latest(reader, _FEEDBACK) > backlog.position(reader, _comparisons(scope)).ready_seq


def pull(txn: Transaction, plan: Plan, at: Position) -> tuple[Position, bool]:
    """Take one chunk; returns the new position, and whether there is more."""
    scope = plan.scope
    if scope.unit == "pair" and _pull_comparisons(txn, scope, at.seed):
        return at, True
    at = backlog.pull(txn, scope, at)
    return at, at.ready_seq < txn.counter(f"pk.{READY}")


def reshuffle(txn: Transaction, plan: Plan, at: Position, after: int | None) -> tuple[Position, int | None]:
    """Shuffle a chunk of the backlog by the spec's seed; returns where the next begins, None once all are."""
    seed = plan.spec.seed
    until = backlog.reshuffle(txn, plan.scope, -1 if after is None else after, seed)
    if until is None:
        at = backlog.move(txn, plan.scope, at._replace(seed=seed))
    return at, until


def _comparisons(scope: Scope) -> Scope:
    """Where the position among comparisons is kept."""
    return Scope(scope.consumer, "comparison", scope.channel)


def _pull_comparisons(txn: Transaction, scope: Scope, seed: int) -> bool:
    """Take a chunk of new comparisons; whether there may be more."""
    own = _comparisons(scope)
    at = backlog.position(txn, own)
    last = txn.counter(f"pk.{_FEEDBACK}")
    if at.ready_seq >= last:
        return False
    taken = pairs.pull_comparisons(txn, scope, at.ready_seq, seed)
    backlog.move(txn, own, at._replace(ready_seq=last if taken is None else taken))
    return taken is not None
