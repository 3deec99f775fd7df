"""The rows of rewards, and the effective value of each name on its target.

The effective value is the one that was set last, whatever its source: the row with the highest primary key, as setting
a value anew gives its row a new one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import delete, insert, select, update

from agentworld.pool import schema
from agentworld.pool.counters import REWARDS
from agentworld.pool.signal_rules import Target
from agentworld.pool.sql.connections import Reader, Row
from agentworld.pool.sql.events import Events
from agentworld.pool.sql.lookups import among_texts
from agentworld.pool.sql.rows import from_json, json_or_none
from agentworld.pool.sql.statements import json_list, parameter, sql
from agentworld.pool.sql.targets import Found
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import Reward

_r = schema.rewards
_KNOWN = sql(
    select(_r.c.pk, _r.c.target_id, _r.c.name, _r.c.source, _r.c.value).where(
        _r.c.target == parameter("kind"), among_texts(_r.c.target_id, "ids")
    )
)
_INSERT = sql(insert(_r).values({column.name: parameter(column.name) for column in _r.c}))
_REPLACE = sql(
    update(_r)
    .where(_r.c.pk == parameter("row"))
    .values({name: parameter(name) for name in ("pk", "value", "details", "of_trajectory", "created_at")})
)
_OF_TARGETS = sql(
    select(_r).where(_r.c.target == parameter("kind"), among_texts(_r.c.target_id, "ids")).order_by(_r.c.pk)
)
_RENEW = sql(update(_r).where(_r.c.pk == parameter("row")).values(pk=parameter("pk")))
_DELETE = sql(delete(_r).where(_r.c.pk == parameter("row")))

_Key = tuple[Target, str, str, str]  # kind and id of the target, name, source


class RewardRows:
    """Rewards that one operation stores: what is there is read by `load`, what is new is written by `write`."""

    def __init__(self, txn: Transaction) -> None:
        self._txn = txn
        self._values: dict[_Key, float] = {}
        self._there: dict[_Key, int] = {}  # keys of the rows that are stored already
        self._rows: dict[_Key, dict[str, Any]] = {}

    def load(self, kind: Target, ids: Iterable[str]) -> None:
        """Read what is stored of these targets; needed before `keep`."""
        named = list(dict.fromkeys(ids))
        if not named:
            return
        for row in self._txn.execute(_KNOWN, {"kind": kind, "ids": json_list(named)}):
            key = (kind, row["target_id"], row["name"], row["source"])
            self._there[key], self._values[key] = row["pk"], row["value"]

    def keep(self, kind: Target, target_id: str, reward: Reward) -> bool:
        """Store the reward beside those of other sources; False where the same value was there."""
        key = (kind, target_id, reward.name, reward.source)
        if self._values.get(key) == reward.value:
            return False
        self._values[key] = value = float(reward.value)
        self._rows[key] = {
            "pk": self._txn.next_pk("rewards"),
            "value": value,
            "details": json_or_none(reward.details),
            "of_trajectory": reward.trajectory_id if kind == "step" else None,
            "created_at": reward.created_at or self._txn.now,
        }
        return True

    def write(self) -> None:
        """Write what was kept."""
        new, changed = [], []
        for key, row in self._rows.items():
            if (pk := self._there.get(key)) is not None:
                changed.append({"row": pk, **row})
            else:
                kind, target_id, name, source = key
                new.append({**row, "target": kind, "target_id": target_id, "name": name, "source": source})
        self._txn.many(_INSERT, new)
        self._txn.many(_REPLACE, changed)
        self._txn.count(REWARDS, len(new))
        self._there |= {key: row["pk"] for key, row in self._rows.items()}
        self._rows = {}


def keep_rewards(txn: Transaction, said: Iterable[tuple[Target, str, Reward]]) -> None:
    """Store rewards, each on the target of this kind and id; their targets are left as they are."""
    rows, listed = RewardRows(txn), list(said)
    for of_kind in ("step", "trajectory"):
        rows.load(of_kind, (target_id for kind, target_id, _ in listed if kind == of_kind))
    for kind, target_id, reward in listed:
        rows.keep(kind, target_id, reward)
    rows.write()


def apply_reward(events: Events, target: Found, reward: Reward) -> None:
    """Make a stored reward the effective value on its target, and tell of it."""
    value = float(reward.value)
    target.set_reward(reward.name, value)
    data = {"name": reward.name, "value": value, "source": reward.source}
    events.add("reward.set", target.trajectory_id, target.step_id, data, channel=target.channel)


def rewards_of(txn: Transaction, kind: str, ids: list[str]) -> list[Row]:
    """The rows on these targets, those that were set last at the end."""
    return txn.execute(_OF_TARGETS, {"kind": kind, "ids": json_list(ids)})


def read_of_targets(reader: Reader, wanted: dict[str, list[str]]) -> list[Reward]:
    """Rewards on targets by their kind, those that were set last at the end of each kind."""
    return [
        _reward_from(row)
        for kind, ids in wanted.items()
        if ids
        for row in reader.execute(_OF_TARGETS, {"kind": kind, "ids": json_list(ids)})
    ]


def _reward_from(row: Row) -> Reward:
    on_step = row["target"] == "step"
    return Reward(
        value=row["value"],
        trajectory_id=row["of_trajectory"] if on_step else row["target_id"],
        step_id=row["target_id"] if on_step else None,
        name=row["name"],
        source=row["source"],
        details=from_json(row["details"], None),
        created_at=row["created_at"],
    )


def renew_rewards(txn: Transaction, pks: Iterable[int]) -> None:
    """Make these rows the ones that were set last, in this order."""
    txn.many(_RENEW, [{"row": pk, "pk": txn.next_pk("rewards")} for pk in pks])


def drop_rewards(txn: Transaction, pks: list[int]) -> None:
    """Take rows away."""
    txn.many(_DELETE, [{"row": pk} for pk in pks])
    txn.count(REWARDS, -len(pks))


def reward_from(row: Row) -> Reward:
    """A row as a record."""
    on_step = row["target"] == "step"
    return Reward(
        value=row["value"],
        trajectory_id=row["of_trajectory"] if on_step else row["target_id"],
        step_id=row["target_id"] if on_step else None,
        name=row["name"],
        source=row["source"],
        details=from_json(row["details"], None),
        created_at=row["created_at"],
    )
