"""Decisions inside a transaction: what the policies in force, and people, make of trajectories that have ended.

`redecide` is called before trajectories are settled, with all that one operation has changed; a decision that comes out
as before writes nothing. What it writes is the table of decisions, and of its targets `excluded_reason` and `labels`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import delete, insert, or_, select, update

from agentworld.errors import NotFoundError
from agentworld.pool import schema
from agentworld.pool.counters import STEPS_EXCLUDED
from agentworld.pool.decision_rules import (
    NOTHING,
    Compiled,
    Made,
    Target,
    exchanged,
    relabelled,
    said,
)
from agentworld.pool.rules import DELETING, IMPORTING
from agentworld.pool.sql import reviews
from agentworld.pool.sql.connections import Row
from agentworld.pool.sql.events import Events
from agentworld.pool.sql.judging import (
    TABLES,
    judging,
    made_by,
    policies_in_force,
    target_columns,
    targets_from,
)
from agentworld.pool.sql.lookups import among_integers, among_texts
from agentworld.pool.sql.rows import from_json, json_or_none
from agentworld.pool.sql.statements import json_list, parameter, sql
from agentworld.pool.sql.tally import recount_usable
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import Decision

# How many policies are in force, or ended with their decisions still to be taken away.
ACTIVE = "curation.active"

_s, _t, _d, _c = schema.steps, schema.trajectories, schema.decisions, schema.curation_policies
_ENDED = sql(
    select(_t.c.pk, _t.c.channel)
    .where(
        among_integers(_t.c.pk, "rows"),
        _t.c.status != "open",
        or_(_t.c.excluded_reason.is_(None), _t.c.excluded_reason.not_in((DELETING, IMPORTING))),
    )
    .order_by(_t.c.pk)
)
_OF_TARGETS = sql(
    select(_d).where(_d.c.subject == parameter("kind"), among_integers(_d.c.row_pk, "rows")).order_by(_d.c.pk)
)
_OF_ALL_STEPS = sql(select(_d).where(among_integers(_d.c.trajectory, "rows"), _d.c.subject == "step").order_by(_d.c.pk))
_INSERT = sql(insert(_d).values({column.name: parameter(column.name) for column in _d.c}))
_CHANGING = ("verdict", "reason", "rule", "policy", "labels", "said", "source", "at")
_COMPARED = tuple(name for name in _CHANGING if name != "at")
_UPDATE = sql(update(_d).where(_d.c.pk == parameter("row")).values({name: parameter(name) for name in _CHANGING}))
_SAY = sql(update(_d).where(_d.c.pk == parameter("row")).values(said=parameter("words")))
_DELETE = sql(delete(_d).where(among_integers(_d.c.pk, "rows")))
_WRITE = {
    target: sql(
        update(table)
        .where(table.c.pk == parameter("row"))
        .values(excluded_reason=parameter("reasons"), labels=parameter("said"))
    )
    for target, table in TABLES.items()
}
_NAMED = {
    "trajectory": sql(
        select(_t.c.pk, _t.c.pk.label("trajectory"), _t.c.trajectory_id.label("id")).where(
            among_texts(_t.c.trajectory_id, "ids")
        )
    ),
    "step": sql(select(_s.c.pk, _s.c.trajectory, _s.c.step_id.label("id")).where(among_texts(_s.c.step_id, "ids"))),
}


_BY_PKS = {
    target: sql(
        select(*target_columns(target)).select_from(targets_from(target)).where(among_integers(table.c.pk, "rows"))
    )
    for target, table in TABLES.items()
}


class _Key(NamedTuple):
    subject: Target
    row: int


class _Target(NamedTuple):
    """A target as it is."""

    key: _Key
    id: str
    trajectory: int
    trajectory_id: str
    channel: str
    reasons: str | None
    labels: str | None


class _Kept:
    """What is decided of some trajectories and their steps, and what changes of it."""

    def __init__(self, txn: Transaction, rows: Sequence[Row]) -> None:
        self._txn = txn
        self._events = Events(txn)
        self.rows = {(_Key(row["subject"], row["row_pk"]), row["by"]): row for row in rows}
        self._asked = reviews.Asking(txn)
        self._inserts: list[dict[str, Any]] = []
        self._updates: list[dict[str, Any]] = []
        self._says: list[dict[str, Any]] = []
        self._deletes: list[int] = []
        self._targets: dict[Target, list[dict[str, Any]]] = {"step": [], "trajectory": []}
        self.changed: set[int] = set()  # trajectories
        self._recount: dict[int, None] = {}
        self._known: dict[tuple[int, str], tuple[Made, dict[str, Any]]] = {}

    def by_policy(self, target: _Target, made: Made, version: str) -> None:
        """The policy makes this of a target now."""
        before, manual = self.rows.get((target.key, "policy")), self.rows.get((target.key, "manual"))
        if before is None and not made:
            return
        values = self._values(made, version)
        if manual is not None:
            values = {**values, "said": None}
        words, labels = values["said"], values["labels"]
        if before is None:
            self._insert(target, "policy", values)
        elif not made:
            self._deletes.append(before["pk"])
        elif any(before[name] != values[name] for name in _COMPARED):
            self._updates.append({"row": before["pk"], **values})
        else:
            return
        old = (manual or before or {"said": None})["said"]
        self._apply(target, old, manual["said"] if manual is not None else words, before, labels)
        if manual is None:
            self._tell(target, before, made.verdict, made.reason, "policy")
            self._ask(target, made)

    def _values(self, made: Made, version: str) -> dict[str, Any]:
        """The columns of a policy's decision. Of many targets the same is made, which is put into words once."""
        key = (id(made), version)
        if key not in self._known:
            values = {
                "verdict": made.verdict,
                "reason": made.reason,
                "rule": made.rule,
                "policy": version,
                "labels": json_or_none(dict(made.labels)),
                "said": said(None, made),
                "source": "policy",
                "at": self._txn.now,
            }
            self._known[key] = (made, values)  # With what it is the id of, which so stays that one's.
        return self._known[key][1]

    def by_hand(self, target: _Target, sent: Decision) -> bool:
        """A person decides; whether that changes anything."""
        before, policy = self.rows.get((target.key, "manual")), self.rows.get((target.key, "policy"))
        if sent.verdict is None:
            if before is None:
                return False
            made = NOTHING if policy is None else _made_from(policy)
            words = said(None, made)
            self._deletes.append(before["pk"])
            if policy is not None:
                self._says.append({"row": policy["pk"], "words": words})
            self._apply(target, before["said"], words, None, None)
            self._tell(target, before, made.verdict, made.reason, "policy")
            self._ask(target, made)
            return True
        if before is not None and (before["verdict"], before["reason"], before["source"]) == (
            sent.verdict,
            sent.reason,
            sent.source,
        ):
            return False
        words = said(sent, NOTHING)
        values = {
            **dict.fromkeys(_CHANGING),
            "verdict": sent.verdict,
            "reason": sent.reason,
            "said": words,
            "source": sent.source,
            "at": sent.at or self._txn.now,
        }
        old = before or policy
        if before is None:
            self._insert(target, "manual", values)
            if policy is not None:
                self._says.append({"row": policy["pk"], "words": None})
        else:
            self._updates.append({"row": before["pk"], **values})
        self._apply(target, None if old is None else old["said"], words, None, None)
        self._tell(target, old, sent.verdict, sent.reason, "manual")
        self._ask(target, Made(sent.verdict, sent.reason), "manual")
        return True

    def write(self) -> None:
        """Write what has changed, and count the steps of trajectories anew where some came or went."""
        if self._deletes:
            self._txn.execute(_DELETE, {"rows": json_list(self._deletes)})
        self._txn.many(_INSERT, self._inserts)
        self._txn.many(_UPDATE, self._updates)
        self._txn.many(_SAY, self._says)
        for target, rows in self._targets.items():
            self._txn.many(_WRITE[target], rows)
        for trajectory in self._recount:
            recount_usable(self._txn, trajectory)
        self._asked.write()
        self._events.write()

    def _insert(self, target: _Target, by: str, values: Mapping[str, Any]) -> None:
        self._inserts.append(
            {
                "pk": self._txn.next_pk("decisions"),
                "subject": target.key.subject,
                "row_pk": target.key.row,
                "by": by,
                "trajectory": target.trajectory,
                **values,
            }
        )

    def _apply(self, target: _Target, old: str | None, new: str | None, before: Row | None, labels: str | None) -> None:
        """Put a reason in the place of another, and, of a policy, labels in the place of those of the row `before`."""
        reasons = exchanged(target.reasons, old, new)
        now = target.labels
        set_before = before["labels"] if before is not None else None
        if set_before != labels:
            now = json_or_none(
                relabelled(from_json(target.labels, {}), from_json(set_before, {}), from_json(labels, {}))
            )
        if reasons == target.reasons and now == target.labels:
            return
        self._targets[target.key.subject].append({"row": target.key.row, "reasons": reasons, "said": now})
        self.changed.add(target.trajectory)
        if target.key.subject == "step" and (reasons is None) != (target.reasons is None):
            self._txn.count(STEPS_EXCLUDED, -1 if reasons is None else 1)
            self._recount[target.trajectory] = None

    def _tell(self, target: _Target, before: Row | None, verdict: str | None, reason: str | None, by: str) -> None:
        if before is not None and (before["verdict"], before["reason"]) == (verdict, reason):
            return
        if before is None and verdict is None:
            return
        step_id = target.id if target.key.subject == "step" else None
        data = {"verdict": verdict, "reason": reason, "by": by}
        self._events.add("decision.set", target.trajectory_id, step_id, data, channel=target.channel)

    def _ask(self, target: _Target, made: Made, origin: str = "rule") -> None:
        if made.verdict == "review":
            self._asked.ask(target.key.subject, target.id, target.channel, origin, made.reason or "", made.worth, True)
        else:
            self._asked.withdraw(target.key.subject, target.id)


def redecide(txn: Transaction, rows: Iterable[int], steps: Iterable[int] | None = None) -> set[int]:
    """Decide trajectories, by their keys, and their steps by the policies in force, those that are open left aside;
    returns which have changed. They are to be settled, as touched. `steps`: the keys of those of their steps that have
    changed, where nothing else has that rules about steps can see; None: all of them.
    """
    ended = txn.execute(_ENDED, {"rows": json_list(list(dict.fromkeys(rows)))})
    if not ended:
        return set()
    policies = policies_in_force(txn.connection, {row["channel"] for row in ended})
    pks = [row["pk"] for row in ended]
    named = None if steps is None else list(dict.fromkeys(steps))
    changed: set[int] = set()
    if named is None:
        kept = _Kept(txn, txn.execute(_OF_ALL_STEPS, {"rows": json_list(pks)}))
    else:
        kept = _Kept(txn, _on(txn, "step", named) if named else [])
    if named is None or named:
        changed = _pass(kept, txn, policies, ended, "step", named)
        kept.write()
    # What rules about trajectories see depends on what became of the steps.
    kept = _Kept(txn, _on(txn, "trajectory", pks))
    changed |= _pass(kept, txn, policies, ended, "trajectory", None)
    kept.write()
    return changed


def _on(txn: Transaction, target: Target, rows: Sequence[int]) -> list[Row]:
    return txn.execute(_OF_TARGETS, {"kind": target, "rows": json_list(list(rows))})


def _pass(
    kept: _Kept,
    txn: Transaction,
    policies: Mapping[str, Compiled],
    ended: Sequence[Row],
    target: Target,
    steps: Sequence[int] | None,
) -> set[int]:
    by_channel: dict[str, list[int]] = {}
    for row in ended:
        by_channel.setdefault(row["channel"], []).append(row["pk"])
    seen: set[_Key] = set()
    for channel, pks in by_channel.items():
        policy = policies.get(channel)
        if policy is None or (not policy.of(target) and (target == "step" or policy.default == "ready")):
            continue
        bound = {"rows": json_list(pks)}
        if steps is not None:
            bound["steps"] = json_list(list(steps))
        for row in txn.execute(judging(policy, target, few=steps is not None), bound):
            found = _target_from(target, row)
            seen.add(found.key)
            kept.by_policy(found, made_by(policy, target, row), policy.version)
    # What no policy decides any more.
    left = [key.row for key, by in kept.rows if by == "policy" and key.subject == target and key not in seen]
    if left:
        for row in txn.execute(_BY_PKS[target], {"rows": json_list(left)}):
            kept.by_policy(_target_from(target, row), NOTHING, "")
    return kept.changed


class Decided(NamedTuple):
    """How many manual decisions changed something; the trajectories, which are to be settled as touched; and the steps
    that were decided, None where trajectories were, whose standing rules about any step may ask for.
    """

    changes: int
    trajectories: list[int]
    steps: list[int] | None


def decide(txn: Transaction, sent: Sequence[tuple[Target, str, Decision]]) -> Decided:
    """Manual decisions. NotFoundError where a target is not there."""
    found: dict[tuple[Target, str], Row] = {}
    for target in TABLES:
        ids = [target_id for kind, target_id, _ in sent if kind == target]
        if ids:
            rows = txn.execute(_NAMED[target], {"ids": json_list(ids)})
            found.update(((target, row["id"]), row) for row in rows)
    for number, (target, target_id, _) in enumerate(sent):
        if (target, target_id) not in found:
            raise NotFoundError(f"no {target} {target_id!r}", path=f"decisions[{number}]")
    count = 0
    changed: set[int] = set()
    steps: dict[int, None] = {}
    # One after the other: two of a call may be on one target.
    for target, target_id, decision in sent:
        row = found[target, target_id]
        kept = _Kept(txn, _on(txn, target, [row["pk"]]))
        [now] = txn.execute(_BY_PKS[target], {"rows": json_list([row["pk"]])})
        if kept.by_hand(_target_from(target, now), decision):
            count += 1
            kept.write()
            changed |= kept.changed
            if target == "step":
                steps[row["pk"]] = None
    whole = any(target == "trajectory" for target, _, _ in sent)
    return Decided(count, sorted(changed), None if whole else list(steps))


def _target_from(target: Target, row: Row) -> _Target:
    return _Target(
        _Key(target, row["pk"]),
        row["id"],
        row["trajectory"],
        row["trajectory_id"],
        row["channel"],
        row["excluded_reason"],
        row["labels"],
    )


def _made_from(row: Row) -> Made:
    return Made(row["verdict"], row["reason"], row["rule"], from_json(row["labels"], {}))
