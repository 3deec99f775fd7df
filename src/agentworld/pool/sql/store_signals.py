"""Signals, events and what was rejected."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from sqlalchemy import func, select

from agentworld.pool import schema
from agentworld.pool.arguments import check_event_filters
from agentworld.pool.base import check_after, check_limit, cursor_for, read_cursor
from agentworld.pool.events import TO_ALL, stored_channel
from agentworld.pool.own_channel import named_by_signals
from agentworld.pool.results import DeadLetter, Page, SignalsResult
from agentworld.pool.signal_rules import (
    CheckedSignal,
    Signal,
    check_few,
    check_kind,
    check_one_target,
    check_signals,
    check_step_ids,
    in_parts,
    joined,
)
from agentworld.pool.sql import feedback, rewards, signals
from agentworld.pool.sql.annotations import read_annotations
from agentworld.pool.sql.backlog import text_of
from agentworld.pool.sql.connections import Row
from agentworld.pool.sql.own_channel import check_named
from agentworld.pool.sql.rows import event_data
from agentworld.pool.sql.statements import parameter, sql
from agentworld.pool.sql.store_groups import GroupMethods
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import Annotation, Event, Feedback, FeedbackKind, Reward

_e, _d = schema.events.c, schema.dead_letters.c
_after = select(schema.events).where(_e.pk > parameter("after")).order_by(_e.pk).limit(parameter("limit"))
_EVENTS = sql(_after)
_in_channel = _after.where(_e.channel == parameter("channel"))
_EVENTS_IN_CHANNEL = sql(_in_channel)
_of_trajectory = _after.where(
    _e.trajectory_id.is_not(None),
    # Not the column itself: SQLite would put the id in its place below, where the index is by an expression of it.
    _e.trajectory_id.concat(text_of("nothing")) == parameter("id"),
    func.substr(_e.trajectory_id, func.length(_e.trajectory_id) - 3) == parameter("end_of_id"),
)
# Not to be found by the channel, which may hold most events.
_its_channel = _e.channel.concat(text_of("nothing"))
_EVENTS_OF = {False: sql(_of_trajectory), True: sql(_of_trajectory.where(_its_channel == parameter("channel")))}
_DEAD = sql(select(schema.dead_letters).where(_d.pk > parameter("after")).order_by(_d.pk).limit(parameter("limit")))


class SignalMethods(GroupMethods):
    """Rewards, feedback, annotations, events, dead letters."""

    def add_signals(self, sent: Sequence[Signal], *, own_channel: str | None = None) -> SignalsResult:
        """See Pool."""
        checked = check_signals(sent)
        parts = in_parts(checked)
        named = None if own_channel is None else named_by_signals(checked)

        def look(txn: Transaction) -> None:
            if own_channel is not None and named is not None:
                check_named(txn, own_channel, named)

        def check(txn: Transaction) -> None:
            look(txn)
            signals.check(txn, checked)

        def write(txn: Transaction, part: list[CheckedSignal]) -> SignalsResult:
            look(txn)
            return signals.add_signals(txn, part)

        if len(parts) > 1:
            self._writer.submit(check).result()
        # Each is asked for once the one before is written, so that other processes have their turn in between.
        return joined([self._writer.submit(functools.partial(write, part=part)).result() for part in parts])

    def list_feedback(
        self,
        *,
        trajectory_id: str | None = None,
        step_id: str | None = None,
        kind: FeedbackKind | None = None,
        source: str | None = None,
        name: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Feedback]:
        """See Pool."""
        target = check_one_target(trajectory_id, step_id)
        check_kind(kind)
        after = read_cursor(cursor, "oldest") or 0
        chosen = {"kind": kind, "source": source, "name": name}
        with self._database.reading() as connection:
            rows, looked_to = feedback.list_rows(connection, target, chosen, after, check_limit(limit) + 1)
        more = rows[limit - 1]["pk"] if len(rows) > limit else looked_to
        found = [feedback.feedback_from(row) for row in rows[:limit]]
        return Page(found, None if more is None else cursor_for(more, "oldest"))

    def feedback_on(self, *, trajectory_ids: Sequence[str] = (), step_ids: Sequence[str] = ()) -> list[Feedback]:
        """See Pool."""
        wanted = {
            "trajectory": check_few(trajectory_ids, "trajectory_ids"),
            "step": check_few(step_ids, "step_ids"),
        }
        with self._database.reading() as connection:
            return feedback.read_of_targets(connection, wanted)

    def rewards_on(self, *, trajectory_ids: Sequence[str] = (), step_ids: Sequence[str] = ()) -> list[Reward]:
        """See Pool."""
        wanted = {
            "trajectory": check_few(trajectory_ids, "trajectory_ids"),
            "step": check_few(step_ids, "step_ids"),
        }
        with self._database.reading() as connection:
            return rewards.read_of_targets(connection, wanted)

    def get_annotations(
        self,
        *,
        step_ids: Sequence[str] | None = None,
        trajectory_id: str | None = None,
        names: Sequence[str] | None = None,
    ) -> list[Annotation]:
        """See Pool."""
        steps = check_step_ids(step_ids, trajectory_id)
        wanted = None if names is None else list(names)
        with self._database.reading() as connection:
            return read_annotations(connection, steps, trajectory_id, wanted)

    def events(
        self, after: int = 0, limit: int = 1000, *, trajectory_id: str | None = None, channel: str | None = None
    ) -> list[Event]:
        """See Pool."""
        bound: dict[str, Any] = {"after": check_after(after), "limit": check_limit(limit)}
        check_event_filters(trajectory_id, channel)
        with self._database.reading() as connection:
            if trajectory_id is None and channel is None:
                found = connection.execute(_EVENTS, bound)
            else:
                found = connection.execute(_EVENTS_IN_CHANNEL, bound | {"channel": TO_ALL})
                within = {} if channel is None else {"channel": stored_channel(channel)}
                if trajectory_id is None:
                    found += connection.execute(_EVENTS_IN_CHANNEL, bound | {"channel": within["channel"]})
                else:
                    own = {"id": trajectory_id, "end_of_id": trajectory_id[-4:], "nothing": ""}
                    found += connection.execute(_EVENTS_OF[channel is not None], bound | within | own)
                found = sorted(found, key=_number)[:limit]
        return [
            Event(
                sequence=row["pk"],
                kind=row["kind"],
                at=row["at"],
                trajectory_id=row["trajectory_id"],
                step_id=row["step_id"],
                data=event_data(row["kind"], row["data"]),
            )
            for row in found
        ]

    def dead_letters(self, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        """See Pool."""
        with self._database.reading() as connection:
            found = connection.execute(_DEAD, {"after": check_after(after), "limit": check_limit(limit)})
        return [DeadLetter(row["pk"], *(row[name] for name in DeadLetter.__struct_fields__[1:])) for row in found]


def _number(row: Row) -> int:
    number: int = row["pk"]
    return number
