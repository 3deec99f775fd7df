"""Steps that a client's retry takes the place of: they stay, excluded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import select, update

from agentworld.pool import rules, schema
from agentworld.pool.counters import STEPS_EXCLUDED
from agentworld.pool.sql.standing import by_pk, settle
from agentworld.pool.sql.statements import parameter, sql
from agentworld.pool.sql.tally import recount_usable
from agentworld.pool.sql.transaction import Transaction

_s = schema.steps
_FIND = sql(
    select(_s.c.pk, _s.c.excluded_reason).where(
        _s.c.step_id == parameter("id"), _s.c.trajectory == parameter("owner"), _s.c.pk < parameter("before")
    )
)
_EXCLUDE = sql(update(_s).where(_s.c.pk == parameter("row")).values(excluded_reason=parameter("reason")))


class Superseded(NamedTuple):
    """The id of a step, its trajectory's row, and the row of the step that supersedes it."""

    step_id: str
    trajectory: int
    by: int


def supersede(txn: Transaction, named: Sequence[Superseded]) -> None:
    """Exclude the steps, once those that take their place are written, and count their trajectories anew."""
    changed: dict[int, None] = {}
    for step_id, trajectory, by in named:
        row = txn.one(_FIND, {"id": step_id, "owner": trajectory, "before": by})
        if row is None:
            continue  # The first call left no step, or it is another trajectory's, which is not ours to exclude.
        reasons = [row["excluded_reason"]] if row["excluded_reason"] else []
        txn.execute(_EXCLUDE, {"row": row["pk"], "reason": rules.joined_reasons([*reasons, "superseded"])})
        if not reasons:
            txn.count(STEPS_EXCLUDED)
            changed[trajectory] = None
    for trajectory in changed:
        before = by_pk(txn, trajectory)
        recount_usable(txn, trajectory)
        settle(txn, before, touched=True)
