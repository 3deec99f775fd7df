"""The rows of reviews: asked for, and withdrawn, by what decides."""

from __future__ import annotations

from typing import Any

from sqlalchemy import insert, null, select, update

from agentworld.pool import schema
from agentworld.pool.sql.connections import Row
from agentworld.pool.sql.lookups import among_texts
from agentworld.pool.sql.statements import json_list, parameter, sql
from agentworld.pool.sql.transaction import Transaction

_r = schema.reviews
_FIND = sql(select(_r).where(_r.c.target == parameter("kind"), among_texts(_r.c.target_id, "ids")))
_INSERT = sql(insert(_r).values({column.name: parameter(column.name) for column in _r.c}))
_ASKED = ("origin", "reason", "worth", "state", "created_at")
_FRESH = ("claimed_by", "claimed_until", "skipped_by", "verdict", "resolved_by", "comment", "resolved_at")
_AGAIN = sql(
    update(_r)
    .where(_r.c.pk == parameter("row"))
    .values({**{name: parameter(name) for name in _ASKED}, **dict.fromkeys(_FRESH, null())})
)
_REASON = sql(
    update(_r)
    .where(_r.c.pk == parameter("row"))
    .values(origin=parameter("origin"), reason=parameter("reason"), worth=parameter("worth"))
)
_WITHDRAW = sql(
    update(_r).where(_r.c.pk == parameter("row")).values(state="withdrawn", claimed_by=null(), claimed_until=null())
)


class Asking:
    """Reviews that one operation asks for, or withdraws as their target is decided otherwise."""

    def __init__(self, txn: Transaction) -> None:
        self._txn = txn
        self._wanted: dict[tuple[str, str], dict[str, Any] | None] = {}

    def ask(self, target: str, target_id: str, channel: str, origin: str, reason: str, worth: float) -> None:
        """Somebody should look at the target."""
        self._wanted[target, target_id] = {"channel": channel, "origin": origin, "reason": reason, "worth": worth}

    def withdraw(self, target: str, target_id: str) -> None:
        """Nobody needs to look at it any more, where a decision has asked for it."""
        self._wanted[target, target_id] = None

    def write(self) -> int:
        """Write what was asked for; returns how many reviews have changed."""
        there: dict[tuple[str, str], Row] = {}
        for kind in ("trajectory", "step"):
            ids = [target_id for target, target_id in self._wanted if target == kind]
            if ids:
                rows = self._txn.execute(_FIND, {"kind": kind, "ids": json_list(ids)})
                there.update(((kind, row["target_id"]), row) for row in rows)
        new: list[dict[str, Any]] = []
        again: list[dict[str, Any]] = []
        other: list[dict[str, Any]] = []
        gone: list[dict[str, Any]] = []
        for key, asked in self._wanted.items():
            row = there.get(key)
            if asked is None:
                if row is not None and row["state"] == "open" and row["origin"] in ("rule", "manual"):
                    gone.append({"row": row["pk"]})
            elif row is None:
                new.append(self._new(key, asked))
            elif row["state"] == "open":
                worth = max(row["worth"], asked["worth"])
                if (row["reason"], row["worth"], row["origin"]) != (asked["reason"], worth, asked["origin"]):
                    other.append({"row": row["pk"], **asked, "worth": worth})
            elif row["state"] == "withdrawn" or row["reason"] != asked["reason"]:
                again.append({"row": row["pk"], **asked, "state": "open", "created_at": self._txn.now})
        self._txn.many(_INSERT, new)
        self._txn.many(_AGAIN, again)
        self._txn.many(_REASON, other)
        self._txn.many(_WITHDRAW, gone)
        self._wanted = {}
        return len(new) + len(again) + len(other) + len(gone)

    def _new(self, key: tuple[str, str], asked: dict[str, Any]) -> dict[str, Any]:
        return {
            **dict.fromkeys(column.name for column in _r.c),
            "pk": self._txn.next_pk("reviews"),
            "target": key[0],
            "target_id": key[1],
            "state": "open",
            "created_at": self._txn.now,
            **asked,
        }
