"""Signals, groups, events and what was rejected, in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from agentworld.errors import NotFoundError
from agentworld.pool.annotation_arrays import PackedArray, unpack_values
from agentworld.pool.arguments import check_event_filters
from agentworld.pool.base import check_after, check_limit, cursor_for, read_awaited_cursor, read_cursor
from agentworld.pool.events import TO_ALL, stored_channel
from agentworld.pool.group_rules import check_state
from agentworld.pool.memory import groups
from agentworld.pool.memory.signals import add_signals
from agentworld.pool.memory.state import copied
from agentworld.pool.memory.store_base import MemoryStore
from agentworld.pool.own_channel import named_by_signals
from agentworld.pool.results import Awaited, DeadLetter, Page, SignalsResult
from agentworld.pool.signal_rules import Signal, check_few, check_kind, check_one_target, check_signals, check_step_ids
from agentworld.records import Annotation, Event, Feedback, FeedbackKind, Group, Reward


class SignalMethods(MemoryStore):
    """Rewards, feedback, annotations, groups, events, dead letters."""

    def add_signals(self, sent: Sequence[Signal], *, own_channel: str | None = None) -> SignalsResult:
        """See Pool."""
        checked = [msgspec.structs.replace(one, record=copied(one.record)) for one in check_signals(sent)]
        with self._open():
            if own_channel is not None:
                self._state.check_own(own_channel, named_by_signals(checked))
            return add_signals(self._state, checked)

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
        wanted = check_one_target(trajectory_id, step_id)
        check_kind(kind)
        after = read_cursor(cursor, "oldest") or 0
        check_limit(limit)
        with self._open():
            found = [
                (number, feedback)
                for feedback_id, (target, feedback) in self._state.feedback.items()
                if (number := self._state.feedback_numbers[feedback_id]) > after
                and wanted in (None, (target, feedback.step_id or feedback.trajectory_id))
                and kind in (None, feedback.kind)
                and source in (None, feedback.source)
                and name in (None, feedback.name)
            ]
            more = cursor_for(found[limit - 1][0], "oldest") if len(found) > limit else None
            return Page([copied(feedback) for _, feedback in found[:limit]], more)

    def feedback_on(self, *, trajectory_ids: Sequence[str] = (), step_ids: Sequence[str] = ()) -> list[Feedback]:
        """See Pool."""
        wanted = {("trajectory", one) for one in check_few(trajectory_ids, "trajectory_ids")}
        wanted |= {("step", one) for one in check_few(step_ids, "step_ids")}
        with self._open():
            found = [(target, feedback) for target, feedback in self._state.feedback.values()]
            return [copied(one) for target, one in found if (target, one.step_id or one.trajectory_id) in wanted]

    def rewards_on(self, *, trajectory_ids: Sequence[str] = (), step_ids: Sequence[str] = ()) -> list[Reward]:
        """See Pool."""
        wanted = {("trajectory", one) for one in check_few(trajectory_ids, "trajectory_ids")}
        wanted |= {("step", one) for one in check_few(step_ids, "step_ids")}
        with self._open():
            return [copied(one) for key, one in self._state.rewards.items() if key[:2] in wanted]

    def get_annotations(
        self,
        *,
        step_ids: Sequence[str] | None = None,
        trajectory_id: str | None = None,
        names: Sequence[str] | None = None,
    ) -> list[Annotation]:
        """See Pool."""
        steps = check_step_ids(step_ids, trajectory_id)
        with self._open():
            named = steps if steps is not None else self._state.steps_of.get(trajectory_id or "", [])
            targets = {("step", step_id) for step_id in named}
            if steps is None:
                targets.add(("trajectory", trajectory_id or ""))
            return [
                _with_values(about, array)
                for (target, target_id, name), (about, array) in sorted(
                    self._state.annotations.items(), key=lambda item: item[0]
                )
                if (target, target_id) in targets and (names is None or name in names)
            ]

    def awaited(self, *, cursor: str | None = None, limit: int = 100) -> Page[Awaited]:
        """See Pool."""
        kind, target_id = read_awaited_cursor(cursor)
        check_limit(limit)
        with self._open():
            found = sorted(key for key in self._state.awaited if key > (kind, target_id))
            items = [Awaited(key[0], key[1], self._state.awaited[key]) for key in found[:limit]]
            return Page(items, f"{items[-1].kind}:{items[-1].id}" if len(found) > limit else None)

    def get_group(self, group_id: str) -> Group:
        """See Pool."""
        with self._open():
            if group_id not in self._state.groups:
                raise NotFoundError(f"no group {group_id!r}", path="group_id")
            return self._state.groups[group_id]

    def list_groups(
        self,
        *,
        state: Literal["open", "closed"] | None = None,
        channel: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Group]:
        """See Pool."""
        check_state(state)
        after = read_cursor(cursor, "oldest") or 0
        check_limit(limit)
        with self._open():
            found = [
                (number, group)
                for number, group in enumerate(self._state.groups.values(), 1)
                if number > after and state in (None, group.state) and channel in (None, group.channel)
            ]
            more = cursor_for(found[limit - 1][0], "oldest") if len(found) > limit else None
            return Page([group for _, group in found[:limit]], more)

    def close_due_groups(self) -> int:
        """See Pool."""
        with self._open():
            return groups.close_due(self._state)

    def events(
        self, after: int = 0, limit: int = 1000, *, trajectory_id: str | None = None, channel: str | None = None
    ) -> list[Event]:
        """See Pool."""
        check_event_filters(trajectory_id, channel)
        with self._open():
            found = self._state.events[check_after(after) :]
            check_limit(limit)
            if trajectory_id is not None or channel is not None:
                within = None if channel is None else stored_channel(channel)
                found = [
                    event
                    for event in found
                    if (told := self._state.event_channels[event.sequence - 1]) == TO_ALL
                    or (within in (None, told) and trajectory_id in (None, event.trajectory_id))
                ]
            return found[:limit]

    def dead_letters(self, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        """See Pool."""
        with self._open():
            check_after(after)
            return [letter for letter in self._state.dead if letter.sequence > after][: check_limit(limit)]


def _with_values(about: Annotation, array: PackedArray) -> Annotation:
    return msgspec.structs.replace(about, values=unpack_values(array.dtype, array.shape, array.data))
