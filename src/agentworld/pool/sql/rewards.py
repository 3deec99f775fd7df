"""The rows of rewards, and the effective value of each name on its target.

The effective value is the one that was set last, whatever its source: the row with the highest primary key, as setting
a value anew gives its row a new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import delete, insert, select, update

from agentworld.pool import rules, schema
from agentworld.pool.counters import REWARDS
from agentworld.pool.sql.connections import Row
from agentworld.pool.sql.events import add_event
from agentworld.pool.sql.rows import from_json, json_or_none
from agentworld.pool.sql.statements import parameter, sql
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import Reward

_r, _s, _t = schema.rewards, schema.steps, schema.trajectories
_KEY = ("target", "target_id", "name", "source")
_KNOWN = sql(select(_r.c.pk, _r.c.value).where(*(_r.c[name] == parameter(name) for name in _KEY)))
_INSERT = sql(insert(_r).values({column.name: parameter(column.name) for column in _r.c}))
_REPLACE = sql(
    update(_r)
    .where(_r.c.pk == parameter("row"))
    .values({name: parameter(name) for name in ("pk", "value", "details", "of_trajectory", "created_at")})
)
_OF_TARGET = sql(
    select(_r).where(_r.c.target == parameter("kind"), _r.c.target_id == parameter("id")).order_by(_r.c.pk)
)
_RENEW = sql(update(_r).where(_r.c.pk == parameter("row")).values(pk=parameter("pk")))
_DELETE = sql(delete(_r).where(_r.c.pk == parameter("row")))
_EFFECTIVE = {
    "step": sql(
        update(_s)
        .where(_s.c.pk == parameter("row"))
        .values(rewards=parameter("all_values"), reward=parameter("primary_value"))
    ),
    "trajectory": sql(
        update(_t)
        .where(_t.c.pk == parameter("row"))
        .values(rewards=parameter("all_values"), reward=parameter("primary_value"))
    ),
}


def keep_reward(txn: Transaction, target: str, target_id: str, reward: Reward) -> bool:
    """Store the reward beside those of other sources; False where the same value was there."""
    key = {"target": target, "target_id": target_id, "name": reward.name, "source": reward.source}
    known = txn.one(_KNOWN, key)
    if known is not None and known["value"] == reward.value:
        return False
    values = {
        "pk": txn.next_pk("rewards"),
        "value": float(reward.value),
        "details": json_or_none(reward.details),
        "of_trajectory": reward.trajectory_id if target == "step" else None,
        "created_at": reward.created_at or txn.now,
    }
    if known is None:
        txn.execute(_INSERT, {**values, **key})
        txn.count(REWARDS)
    else:
        txn.execute(_REPLACE, {"row": known["pk"], **values})
    return True


def apply_reward(txn: Transaction, kind: str, row: Row, target_id: str, reward: Reward) -> None:
    """Make a stored reward the effective value on its target, whose row this is, and tell of it."""
    set_values(txn, kind, row, {reward.name: float(reward.value)})
    data = {"name": reward.name, "value": float(reward.value), "source": reward.source}
    add_event(txn, "reward.set", row["trajectory_id"], target_id if kind == "step" else None, data)


def set_values(txn: Transaction, kind: str, row: Row, values: Mapping[str, float]) -> None:
    """The effective values of some names on a step or trajectory."""
    merged: dict[str, Any] = {**from_json(row["rewards"], {}), **values}
    columns = {"row": row["pk"], "all_values": json_or_none(merged), "primary_value": merged.get(rules.PRIMARY)}
    txn.execute(_EFFECTIVE[kind], columns)


def rewards_of(txn: Transaction, kind: str, target_id: str) -> list[Row]:
    """The rows on one target, those that were set last at the end."""
    return txn.execute(_OF_TARGET, {"kind": kind, "id": target_id})


def renew_reward(txn: Transaction, pk: int) -> None:
    """Make the row the one that was set last."""
    txn.execute(_RENEW, {"row": pk, "pk": txn.next_pk("rewards")})


def drop_reward(txn: Transaction, pk: int) -> None:
    """Take one row away."""
    txn.execute(_DELETE, {"row": pk})
    txn.count(REWARDS, -1)
