"""The rows of groups: opened with their first trajectory, counted by every write that moves a member.

What closes a group is in standing, as that changes its members.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import insert, select, update

from agentworld.pool import group_rules, schema
from agentworld.pool.counters import GROUPS
from agentworld.pool.group_rules import Member, rollout_ended, serves
from agentworld.pool.sql.connections import Asked, Reader, Row
from agentworld.pool.sql.lookups import among_integers, among_texts
from agentworld.pool.sql.statements import json_list, parameter, sql
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import Group, NewTrajectory, TrajectoryStatus

_g, _t = schema.groups, schema.trajectories
FIND = sql(select(_g).where(_g.c.group_id == parameter("id")))
_OPEN = sql(insert(_g).values({column.name: parameter(column.name) for column in _g.c}))
_PLAN = sql(
    update(_g)
    .where(_g.c.group_id == parameter("id"))
    .values({name: parameter(name) for name in ("size", "timeout_at", "failures")})
)
_COUNT = sql(
    update(_g)
    .where(_g.c.group_id == parameter("id"))
    .values(
        members=_g.c.members + parameter("more_members"),
        ended=_g.c.ended + parameter("more_ended"),
        served=_g.c.served + parameter("more_served"),
    )
)
_OFFER = sql(update(_g).where(_g.c.group_id == parameter("id")).values(ready_seq=parameter("seq")))
_LOAD = sql(select(_g).where(among_texts(_g.c.group_id, "ids")))
_CLOSE = sql(
    update(_g)
    .where(_g.c.group_id == parameter("id"))
    .values(state="closed", closed_by=parameter("reason"), closed_at=parameter("at"))
)
_DUE = sql(
    select(_g)
    .where(_g.c.state == "open", _g.c.timeout_at <= parameter("now"))
    .order_by(_g.c.timeout_at, _g.c.pk)
    .limit(parameter("limit"))
)
_ATTEMPTS = sql(
    select(_t.c.pk, _t.c.group_id, _t.c.rollout_index, _t.c.status).where(
        among_texts(_t.c.group_id, "ids"), among_integers(_t.c.rollout_index, "rollouts")
    )
)
_MEMBERS = sql(select(_t).where(among_texts(_t.c.group_id, "ids")).order_by(_t.c.pk))


class Numbers(NamedTuple):
    """By how much the numbers of a group change."""

    members: int
    ended: int
    served: int


Change = tuple[Member | None, Member | None]  # a trajectory as it was, and as it is


def group_from(row: Row) -> Group:
    """A row as a record."""
    return Group(**{name: row[name] for name in Group.__struct_fields__})


def member_from(row: Row | Mapping[str, Any]) -> Member:
    """What a group counts of a trajectory's row."""
    return Member(row["pk"], *(row[name] for name in Member._fields[1:]))


def find(txn: Transaction, group_id: str) -> Group | None:
    """The group, if it is there."""
    row = txn.one(FIND, {"id": group_id})
    return None if row is None else group_from(row)


def load(txn: Transaction, group_ids: Iterable[str]) -> dict[str, Group]:
    """Those of the groups that are there, by id."""
    named = list(dict.fromkeys(group_ids))
    if not named:
        return {}
    return {row["group_id"]: group_from(row) for row in txn.execute(_LOAD, {"ids": json_list(named)})}


def members(txn: Transaction, group_ids: Iterable[str]) -> list[Row]:
    """The trajectories of groups, in the order of their creation."""
    return txn.execute(_MEMBERS, {"ids": json_list(list(group_ids))})


def due(reader: Reader, now: float, limit: int = 1) -> list[Row]:
    """Open groups whose time is over, longest ago first."""
    return reader.execute(*ask_due(now, limit))


def ask_due(now: float, limit: int = 1) -> Asked:
    """What `due` asks."""
    return _DUE, {"now": now, "limit": limit}


def plan(txn: Transaction, group_id: str, new: NewTrajectory, there: Group | None) -> Group:
    """The group that `new` joins, opened where `there` is none; ConflictError where it was planned otherwise."""
    if there is None:
        group = group_rules.new_group(group_id, new, txn.now)
        row: dict[str, Any] = {name: getattr(group, name) for name in Group.__struct_fields__}
        txn.execute(_OPEN, {"pk": txn.next_pk("groups"), **row, "ready_seq": None})
        txn.count(GROUPS + "open")
        return group
    planned = group_rules.adopted(there, new)
    if planned != there:
        values = {"size": planned.size, "timeout_at": planned.timeout_at, "failures": planned.failures}
        txn.execute(_PLAN, {"id": group_id, **values})
    return planned


def count(txn: Transaction, before: Member | None, after: Member | None) -> None:
    """Keep the numbers of the groups that a trajectory was in (`before`) and is in now (`after`)."""
    count_all(txn, [(before, after)])


def count_all(txn: Transaction, changes: Sequence[Change]) -> dict[str, Numbers]:
    """Keep the numbers of the groups of trajectories that have changed; returns by how much they do."""
    more: dict[str, list[int]] = {}
    rollouts: dict[tuple[str, int], tuple[list[TrajectoryStatus], list[TrajectoryStatus]]] = {}
    moved: set[int | str] = set()
    for change in changes:
        same_place = len({(m.group_id, m.rollout_index, m.status) if m is not None else None for m in change}) == 1
        for after, member in enumerate(change):
            if member is None or member.group_id is None:
                continue
            sign = 1 if after else -1
            numbers = more.setdefault(member.group_id, [0, 0, 0])
            numbers[0] += sign
            numbers[2] += sign * serves(member.readiness)
            if same_place:
                continue
            if member.rollout_index is None:
                numbers[1] += sign * rollout_ended([member.status])
            else:
                rollouts.setdefault((member.group_id, member.rollout_index), ([], []))[after].append(member.status)
                moved.add(member.key)
    others = _other_attempts(txn, set(rollouts), moved)
    for (group_id, rollout), (before, now) in rollouts.items():
        stay = others.get((group_id, rollout), [])
        more[group_id][1] += rollout_ended([*stay, *now]) - rollout_ended([*stay, *before])
    counted = {group_id: Numbers(*numbers) for group_id, numbers in more.items() if any(numbers)}
    rows = [
        {"id": group_id, "more_members": numbers.members, "more_ended": numbers.ended, "more_served": numbers.served}
        for group_id, numbers in counted.items()
    ]
    txn.many(_COUNT, rows)
    return counted


def count_known(txn: Transaction, changes: Sequence[Change], known: dict[str, Group]) -> None:
    """`count_all`, and the same for the groups that the caller has read."""
    for group_id, more in count_all(txn, changes).items():
        if (group := known.get(group_id)) is not None:
            known[group_id] = msgspec.structs.replace(
                group,
                members=group.members + more.members,
                ended=group.ended + more.ended,
                served=group.served + more.served,
            )


def count_gone(txn: Transaction, open_groups: Mapping[str, Group], gone: Iterable[Member]) -> dict[str, int]:
    """Count rollouts that were deleted with all of their attempts as ended, in groups that wait for so many; by group.

    Call it once their rows are gone, and what they counted was taken away.
    """
    rollouts: set[tuple[str, int]] = set()
    more: dict[str, int] = {}
    for member in gone:
        group_id = member.group_id or ""
        if group_id not in open_groups:
            continue
        if member.rollout_index is None:
            more[group_id] = more.get(group_id, 0) + 1
        else:
            rollouts.add((group_id, member.rollout_index))
    left = _other_attempts(txn, rollouts, set())
    for place in rollouts - left.keys():
        more[place[0]] = more.get(place[0], 0) + 1
    waited = {name: (one.size or 0) - one.ended for name, one in open_groups.items()}
    more = {name: least for name, number in more.items() if (least := min(number, waited[name])) > 0}
    txn.many(
        _COUNT,
        [{"id": name, "more_members": 0, "more_ended": number, "more_served": 0} for name, number in more.items()],
    )
    return more


def offer(txn: Transaction, *group_ids: str) -> None:
    """Put groups last, in this order, in the order in which consumers look at groups."""
    txn.many(_OFFER, [{"id": group_id, "seq": txn.next_pk("ready_seq")} for group_id in group_ids])


def mark_closed(txn: Transaction, reasons: Mapping[str, str]) -> None:
    """Set the state of groups, each with its reason."""
    txn.many(_CLOSE, [{"id": group_id, "reason": reason, "at": txn.now} for group_id, reason in reasons.items()])
    txn.count(GROUPS + "open", -len(reasons))
    txn.count(GROUPS + "closed", len(reasons))


def _other_attempts(
    txn: Transaction, rollouts: set[tuple[str, int]], moved: set[int | str]
) -> dict[tuple[str, int], list[TrajectoryStatus]]:
    """How the attempts at these rollouts stand, but for the trajectories that have moved."""
    found: dict[tuple[str, int], list[TrajectoryStatus]] = {}
    if rollouts:
        named = {
            "ids": json_list(list({g for g, _ in rollouts})),
            "rollouts": json_list(list({r for _, r in rollouts})),
        }
        for row in txn.execute(_ATTEMPTS, named):
            if row["pk"] not in moved:
                found.setdefault((row["group_id"], row["rollout_index"]), []).append(row["status"])
    return found
