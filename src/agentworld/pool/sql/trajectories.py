"""Creating and completing trajectories inside a transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import insert, update

from agentworld.errors import AgentWorldError, GoneError, NotFoundError
from agentworld.pool import rules, schema
from agentworld.pool.counters import CHANNEL_TRAJECTORIES, READINESS, TOMBSTONES, TRAJECTORIES
from agentworld.pool.group_rules import LATE, Member
from agentworld.pool.sql import groups
from agentworld.pool.sql.call_marks import forget_marks
from agentworld.pool.sql.connections import Row
from agentworld.pool.sql.events import Events, add_event, move_events
from agentworld.pool.sql.lookups import among_texts
from agentworld.pool.sql.reviews import move_reviews
from agentworld.pool.sql.rewards import RewardRows
from agentworld.pool.sql.rows import (
    CREATION_COLUMNS,
    creation_columns,
    creation_values,
    select_trajectories,
    trajectory_from,
)
from agentworld.pool.sql.signals import apply_awaited, check_not_deleted
from agentworld.pool.sql.standing import EFFECTIVE, STANDING, Move, close_due_of, effective, exclude, settle_all
from agentworld.pool.sql.statements import json_list, parameter, sql
from agentworld.pool.sql.tally import COLUMNS, NOTHING, Tally, recount_usable
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import Group, NewTrajectory, Readiness, Reward, TerminalStatus, Trajectory

_t = schema.trajectories
FIND = sql(select_trajectories().where(_t.c.trajectory_id == parameter("id")))
_STARTED = ("readiness", "excluded_reason", "status", "declared", "created_at", *COLUMNS)
_CREATED = ("pk", "trajectory_id", *CREATION_COLUMNS, *_STARTED)
_CREATE = sql(insert(_t).values({name: parameter(name) for name in _CREATED}), _CREATED)
# Of one that a step implies outside of a group: what most have none of costs as much as what they have.
_PLAIN = ("attempt", "agent", "channel", "priority", "readiness", "status", "declared", "created_at")
_CREATED_PLAIN = ("pk", "trajectory_id", *_PLAIN, *COLUMNS)
_CREATE_PLAIN = sql(insert(_t).values({name: parameter(name) for name in _CREATED_PLAIN}), _CREATED_PLAIN)
_FIND_ALL = sql(select_trajectories().where(among_texts(_t.c.trajectory_id, "ids")))
_DECLARE = sql(
    update(_t)
    .where(_t.c.pk == parameter("row"))
    .values({"declared": 1, **{name: parameter(name) for name in (*CREATION_COLUMNS, "excluded_reason")}})
)
_COMPLETE = sql(
    update(_t).where(_t.c.pk == parameter("row")).values(status=parameter("ended_as"), completed_at=parameter("at"))
)
CREATED = "trajectory.created"
STATEMENTS = (_CREATE, _CREATE_PLAIN)  # of a trajectory that a step implies


class Creation(NamedTuple):
    """A trajectory to create, or to declare."""

    trajectory_id: str
    new: NewTrajectory


class Completion(NamedTuple):
    """A trajectory to end. `at`: when it ended, None for now."""

    trajectory_id: str
    status: TerminalStatus
    reward: float | None
    at: float | None = None


_Request = TypeVar("_Request", Creation, Completion)
_NONE: Mapping[str, Tally] = {}
_Outcomes = dict[int, AgentWorldError]  # the faults, by the place of what was asked for
_Wave = list[tuple[int, _Request, Row | None]]


def create_all(txn: Transaction, asked: Sequence[Creation]) -> list[Trajectory | AgentWorldError]:
    """Create each, declare what a step implied, or check that the same is there."""
    return _in_waves(txn, asked, _create)


def complete_all(txn: Transaction, asked: Sequence[Completion]) -> list[Trajectory | AgentWorldError]:
    """End each once, with its reward."""
    return _in_waves(txn, asked, _complete)


class Implied:
    """Trajectories that steps name and that are not there: each is planned with its first step, `write` inserts them.

    Whoever plans them adds the event of their creation, in the order of the events.
    """

    def __init__(self, txn: Transaction) -> None:
        self._txn = txn
        self._known: dict[str, Group] = {}
        self._begun: list[tuple[int, Creation]] = []
        self._any_deleted = txn.counter(TOMBSTONES) > 0

    def plan(self, trajectory_id: str, new: NewTrajectory) -> int:
        """The row that the open trajectory will have; GoneError where it was deleted, ConflictError where its group was
        planned otherwise.
        """
        txn, known = self._txn, self._known
        if self._any_deleted:
            check_not_deleted(txn, "trajectory", trajectory_id, "trajectory_id")
        if new.group_id is not None:
            if new.group_id not in known:
                known.update(groups.load(txn, [new.group_id]))
            known[new.group_id] = groups.plan(txn, new.group_id, new, known.get(new.group_id))
            close_due_of(txn, known, [new.group_id])
        row = txn.next_pk("trajectories")
        self._begun.append((row, Creation(trajectory_id, new)))
        return row

    def write(self, counted: Mapping[str, Tally] = _NONE) -> None:
        """Insert what was planned, and bring what waited for it. `counted`: by id what their steps of this transaction
        come to.
        """
        _begin(self._txn, self._begun, self._known, declared=False, counted=counted)


def imply(txn: Transaction, trajectory_id: str, new: NewTrajectory) -> Row:
    """Insert an open trajectory that is not there; returns its row. Errors as those of Implied."""
    implied = Implied(txn)
    implied.plan(trajectory_id, new)
    add_event(txn, CREATED, trajectory_id, channel=new.channel)
    implied.write()
    [row] = _rows(txn, [trajectory_id]).values()
    return row


def _rows(txn: Transaction, ids: Iterable[str]) -> dict[str, Row]:
    found = txn.execute(_FIND_ALL, {"ids": json_list(list(dict.fromkeys(ids)))})
    return {row["trajectory_id"]: row for row in found}


def _in_waves(
    txn: Transaction, asked: Sequence[_Request], write: Callable[[Transaction, _Wave[_Request], _Outcomes], None]
) -> list[Trajectory | AgentWorldError]:
    """What came together, written together: at a time one of each trajectory and of each group, as what becomes of the
    next depends on it.
    """
    faults: _Outcomes = {}
    waiting = list(enumerate(asked))
    while waiting:
        rows = _rows(txn, (one.trajectory_id for _, one in waiting))
        wave: _Wave[_Request] = []
        later: list[tuple[int, _Request]] = []
        used: set[tuple[str, str]] = set()
        for place, one in waiting:
            row = rows.get(one.trajectory_id)
            touches = {("trajectory", one.trajectory_id)}
            if row is not None and row["group_id"] is not None:
                touches.add(("group", row["group_id"]))
            if isinstance(one, Creation) and one.new.group_id is not None:
                touches.add(("group", one.new.group_id))
            if used.isdisjoint(touches):
                wave.append((place, one, row))
            else:
                later.append((place, one))
            used |= touches
        write(txn, wave, faults)
        waiting = later
    rows = _rows(txn, (one.trajectory_id for place, one in enumerate(asked) if place not in faults))
    return [faults.get(place) or trajectory_from(rows[one.trajectory_id]) for place, one in enumerate(asked)]


def _create(txn: Transaction, wave: _Wave[Creation], faults: _Outcomes) -> None:
    known = groups.load(txn, (one.new.group_id for _, one, _ in wave if one.new.group_id is not None))
    begun: list[tuple[int, Creation]] = []
    redefined: list[tuple[Creation, Row]] = []
    for place, one, row in wave:
        trajectory_id, new = one
        try:
            if row is None:
                check_not_deleted(txn, "trajectory", trajectory_id, "trajectory_id")
            if new.user is not None and (row is None or not row["declared"]):
                check_not_deleted(txn, "user", new.user, "user")
            if row is not None and row["declared"]:
                rules.check_same_creation(new, trajectory_from(row))
            if new.group_id is not None:
                known[new.group_id] = groups.plan(txn, new.group_id, new, known.get(new.group_id))
        except AgentWorldError as error:
            faults[place] = error
            continue
        if row is None:
            begun.append((txn.next_pk("trajectories"), one))
        elif not row["declared"]:
            redefined.append((one, row))
    joined = [one.new.group_id for one in [*(one for _, one in begun), *(one for one, _ in redefined)]]
    close_due_of(txn, known, dict.fromkeys(name for name in joined if name is not None))
    events = Events(txn)
    for _, one in begun:
        events.add(CREATED, one.trajectory_id, channel=one.new.channel)
    events.write()
    _begin(txn, begun, known, declared=True)
    _redefine(txn, redefined, known)


def _begin(
    txn: Transaction,
    begun: Sequence[tuple[int, Creation]],
    known: dict[str, Group],
    declared: bool,
    counted: Mapping[str, Tally] = _NONE,
) -> None:
    """Insert trajectories that are not there, and bring what waited for them."""
    if not begun:
        return
    rows: list[tuple[Any, ...]] = []
    members: list[groups.Change] = []
    are_plain = not declared and all(_is_plain(one.new) for _, one in begun)
    of_readiness: dict[str, int] = {}
    in_channel: dict[str, int] = {}
    for pk, (trajectory_id, new) in begun:
        late = new.group_id is not None and known[new.group_id].state == "closed"
        readiness: Readiness = "excluded" if late else "open"
        reason = LATE if late else None
        tally = counted.get(trajectory_id)
        came = NOTHING if tally is None else tally.columns()
        if are_plain:
            plain = new.attempt, new.agent, new.channel, new.priority, readiness, "open", 0, txn.now
            rows.append((pk, trajectory_id, *plain, *came))
        else:
            started = (readiness, reason, "open", int(declared), txn.now)
            rows.append((pk, trajectory_id, *creation_values(new), *started, *came))
        if new.group_id is not None:
            member = Member(pk, new.group_id, new.rollout_index, new.attempt, "open", readiness, reason)
            members.append((None, member))
        of_readiness[readiness] = of_readiness.get(readiness, 0) + 1
        in_channel[new.channel] = in_channel.get(new.channel, 0) + 1
    txn.many_in_order(_CREATE_PLAIN if are_plain else _CREATE, rows)
    txn.count(TRAJECTORIES + "open", len(rows))
    for value, number in of_readiness.items():
        txn.count(READINESS + value, number)
    for value, number in in_channel.items():
        txn.count(CHANNEL_TRAJECTORIES + value, number)
    if members:
        groups.count_all(txn, members)
    apply_awaited(txn, "trajectory", [one.trajectory_id for _, one in begun])


def _is_plain(new: NewTrajectory) -> bool:
    """Whether it has no more than _CREATE_PLAIN writes."""
    return (
        new.group_id is None
        and new.group_size is None
        and new.rollout_index is None
        and new.task is None
        and new.user is None
        and not new.metadata
    )


def _redefine(txn: Transaction, redefined: Sequence[tuple[Creation, Row]], known: dict[str, Group]) -> None:
    """Give trajectories that a step implied their settings, which may put them into a group, or another one."""
    moves = []
    for (_, new), row in redefined:
        late = row["excluded_reason"]
        if new.group_id is not None:
            if new.group_id != row["group_id"]:
                late = LATE if known[new.group_id].state == "closed" else None
        elif row["group_id"] is not None:
            late = None
        columns = {**creation_columns(new), "excluded_reason": late}
        txn.execute(_DECLARE, {"row": row["pk"], **columns})
        if new.channel != row["channel"]:
            txn.count(CHANNEL_TRAJECTORIES + row["channel"], -1)
            txn.count(CHANNEL_TRAJECTORIES + new.channel)
            move_events(txn, row["trajectory_id"], new.channel)
            move_reviews(txn, row["pk"], row["trajectory_id"], new.channel)
            recount_usable(txn, row["pk"])  # Its steps stay in the channels that they came in.
        moves.append(Move(groups.member_from(row), {**_standing_of(row), **columns}, True))
    if moves:
        settle_all(txn, moves, known)


def _complete(txn: Transaction, wave: _Wave[Completion], faults: _Outcomes) -> None:
    ending: list[tuple[Completion, Row, Reward | None, bool]] = []
    for place, one, row in wave:
        try:
            if row is None:
                raise _missing(txn, one.trajectory_id)
            signal = None
            if one.reward is not None:
                signal = Reward(value=one.reward, trajectory_id=one.trajectory_id, source="complete")
                rules.check_reward(signal, "reward")
            ending.append((one, row, signal, rules.check_completion(trajectory_from(row), one.status)))
        except AgentWorldError as error:
            faults[place] = error
    known = groups.load(txn, (row["group_id"] for _, row, _, _ in ending if row["group_id"] is not None))
    close_due_of(txn, known, [row["group_id"] for _, row, _, ends in ending if ends and row["group_id"] in known])
    rewards = RewardRows(txn)
    rewards.load("trajectory", (one.trajectory_id for one, _, signal, _ in ending if signal is not None))
    events = Events(txn)
    ended: list[dict[str, Any]] = []
    values: list[dict[str, Any]] = []
    moves: list[Move] = []
    for one, row, signal, ends in ending:
        now = _standing_of(row)
        if ends:
            if row["group_id"] in known and known[row["group_id"]].state == "closed":
                now["excluded_reason"] = exclude(txn, row, LATE)
            at = txn.now if one.at is None else one.at
            ended.append({"row": row["pk"], "ended_as": one.status, "at": at})
            now["status"] = one.status
            txn.count(TRAJECTORIES + "open", -1)
            txn.count(TRAJECTORIES + one.status)
            events.add("trajectory.completed", one.trajectory_id, data={"status": one.status}, channel=row["channel"])
        rewarded = signal is not None and rewards.keep("trajectory", one.trajectory_id, signal)
        if signal is not None and rewarded:
            now["reward"] = value = float(signal.value)
            values.append(effective(row, value))
            data = {"name": signal.name, "value": value, "source": signal.source}
            events.add("reward.set", one.trajectory_id, data=data, channel=row["channel"])
        if ends or rewarded:
            moves.append(Move(groups.member_from(row), now, rewarded))
    rewards.write()
    txn.many(_COMPLETE, ended)
    forget_marks(txn, [one.trajectory_id for one, _, _, ends in ending if ends])
    txn.many(EFFECTIVE, values)
    events.write()
    # Once both are known, so that a group that closes now sees the reward.
    settle_all(txn, moves, known)


def _missing(txn: Transaction, trajectory_id: str) -> AgentWorldError:
    try:
        check_not_deleted(txn, "trajectory", trajectory_id, "trajectory_id")
    except GoneError as error:
        return error
    return NotFoundError(f"no trajectory {trajectory_id!r}", path="trajectory_id")


def _standing_of(row: Row) -> dict[str, Any]:
    """What decides where a trajectory stands, to be changed."""
    return {name: row[name] for name in STANDING}
