"""What there is to judge: what was stored when a run began, what events tell after that, and what has failed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from agentworld.errors import NotFoundError
from agentworld.pool.protocol import Pool
from agentworld.records import Event
from agentworld.rewards.running.cache import Target
from agentworld.rewards.running.following import Place
from agentworld.rewards.running.plan import Plan
from agentworld.rewards.running.positions import Positions
from agentworld.rewards.running.subjects import Subjects

EVENTS = 500
LOOK_SECONDS = 1.0
Key = tuple[Target, str]


class Wanted(NamedTuple):
    """One subject to be judged, and the place behind it."""

    key: Key
    place: Place


class Sources:
    """Subjects in the order in which they are to be begun. Places without any are passed here."""

    def __init__(
        self, pool: Pool, plan: Plan, subjects: Subjects, positions: Positions[Place], stop: threading.Event
    ) -> None:
        self._pool = pool
        self._plan = plan
        self._subjects = subjects
        self._positions = positions
        self._stop = stop

    def stored(self, place: Place, room: Callable[[], int | None]) -> Iterator[Wanted]:
        """What there was when the run began, from `place` on, page by page; a place is behind a whole page."""
        if place.stage == "trajectories":
            pages = self._subjects.trajectories(place.cursor, room) if self._plan.of_trajectories else iter(())
            for records, cursor in pages:
                if self._stop.is_set():
                    return
                behind = _behind(place, cursor, "groups")
                yield from self._part([("trajectory", each.trajectory_id) for each in records], behind)
            place = msgspec.structs.replace(place, stage="groups", cursor=None)
        if place.stage == "groups":
            found = self._subjects.groups(place.cursor, room) if self._plan.of_groups else iter(())
            for groups, cursor in found:
                if self._stop.is_set():
                    return
                yield from self._part([("group", each.group_id) for each in groups], _behind(place, cursor, "events"))
            self._positions.skipped(msgspec.structs.replace(place, stage="events", cursor=None))

    def told(self, follow: bool, begin: Callable[[], None], idle: Callable[[], Iterator[Wanted]]) -> Iterator[Wanted]:
        """What events tell after the place that was passed last: up to the last one of now, or on and on.

        `begin` is called before something is wanted of a page of events, `idle` where there is nothing more to do.
        """
        place = self._positions.last
        last = None if follow else self._pool.stats().last_event
        woken = threading.Event()
        unwatch = self._pool.watch(woken.set)
        try:
            while not self._stop.is_set():
                woken.clear()
                events = self._pool.events(place.event, EVENTS)
                told = [(event, self._keys_of(event)) for event in events if last is None or event.sequence <= last]
                if any(keys for _, keys in told):
                    begin()
                for event, keys in told:
                    place = msgspec.structs.replace(place, event=event.sequence)
                    yield from self._part(keys, place)
                if last is not None and (not events or events[-1].sequence >= last):
                    return
                if not events:
                    yield from idle()
                    woken.wait(min(self._pool.poll_seconds, LOOK_SECONDS))
        finally:
            unwatch()

    def failed(self, which: Callable[[int], bool], only: str | None = None) -> list[Wanted]:
        """What evaluators failed on, where `which` holds of the number of attempts.

        All of it is found before any of it is judged, as that moves it in the listing.
        """
        found: dict[Key, None] = {}
        for each in self._plan.evaluators:
            cursor: str | None = None
            target: Target = "group" if each.scope == "group" else "trajectory"
            while only in (None, each.name):
                page = self._pool.list_evaluations(evaluator=each.name, state="failed", cursor=cursor, limit=1000)
                own = [one for one in page.items if one.target == target and which(one.attempts)]
                found |= {(target, one.target_id): None for one in own}
                cursor = page.next_cursor
                if cursor is None:
                    break
        return [Wanted(key, self._positions.last) for key in found]

    def _part(self, keys: list[Key], behind: Place) -> Iterator[Wanted]:
        """The subjects of one page or event. Only the last one's place is behind it; there may be none."""
        before = self._positions.last
        for number, key in enumerate(keys):
            yield Wanted(key, behind if number == len(keys) - 1 else before)
        if not keys:
            self._positions.skipped(behind)

    def _keys_of(self, event: Event) -> list[Key]:
        """What is to be judged because of an event."""
        if event.kind == "group.closed":
            return [("group", str(event.data["group_id"]))] if self._plan.of_groups else []
        trajectory_id = event.trajectory_id
        if trajectory_id is None or not self._changes(event):
            return []
        keys: list[Key] = [("trajectory", trajectory_id)] if self._plan.of_trajectories else []
        if self._plan.of_groups and event.kind != "trajectory.completed":
            try:
                group_id = self._pool.get_trajectory(trajectory_id).group_id
            except NotFoundError:
                return []
            keys += [("group", group_id)] if group_id is not None else []
        return keys

    def _changes(self, event: Event) -> bool:
        """Whether a trajectory has ended, or what is read of one may have changed since."""
        if event.kind == "reward.set":
            of_others = event.data.get("source") not in self._plan.fingerprints and event.step_id is None
            return of_others and event.data.get("name") in self._plan.awaited
        if event.kind == "step.appended":
            return event.data.get("outcome") == "late"
        return event.kind == "trajectory.completed"


def _behind(place: Place, cursor: str | None, following: str) -> Place:
    """The place behind a page: in the same listing, or where that has ended in what follows it."""
    if cursor is None:
        return msgspec.structs.replace(place, stage=following, cursor=None)
    return msgspec.structs.replace(place, cursor=cursor)
