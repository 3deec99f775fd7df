"""Implicit feedback of a pool, derived from its events: each trajectory once it has ended, and again for late steps."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from agentworld.errors import GoneError, NotFoundError
from agentworld.feedback.implicit import Thresholds, implied
from agentworld.pool.keeping.records import Progress, no_progress
from agentworld.pool.protocol import Pool
from agentworld.records import Event, Feedback, Step

FOLLOWER = "feedback.implicit"
"""Under this name the pool keeps how far it has come; for one channel alone, followed by a colon and the channel."""
MOST_STEPS = 2_000
"""Trajectories with more steps are left out, and counted: all of one is in memory at once."""
_EVENTS, _STEPS, _SIGNALS = 500, 200, 500
_LOOK = 0.2  # seconds between two looks at whether it is to stop


class Derived(msgspec.Struct, kw_only=True):
    """What came of it: trajectories looked at, those too long to be, and new signals by source."""

    trajectories: int = 0
    too_long: int = 0
    signals: Counter[str] = msgspec.field(default_factory=Counter)


def derive(
    pool: Pool,
    thresholds: Thresholds | None = None,
    *,
    channel: str | None = None,
    again: bool = False,
    follow: bool = False,
    stop: threading.Event | None = None,
    progress: Progress = no_progress,
    done: Callable[[Derived], None] | None = None,
) -> Derived:
    """Derive implicit feedback from where the last run ended on, or (`again`) from the first event.

    Ends at the last event or, with `follow`, once `stop` is set. `done` is told after each page of events. A run that
    breaks off anywhere is gone on with by the next; what it had said already is known by its id. ConflictError where
    another process derives in the same pool and channel.
    """
    thresholds = thresholds or Thresholds()
    stop = stop or threading.Event()
    name = FOLLOWER if channel is None else f"{FOLLOWER}:{channel}"
    follower = pool.load_follower(name)
    revision = 0 if follower is None else follower.revision
    position = 0 if follower is None or again else follower.position
    total = Derived()
    woken = threading.Event()
    unwatch = pool.watch(woken.set)
    try:
        while not stop.is_set():
            # Before it looks, so that what comes meanwhile wakes it.
            woken.clear()
            page = pool.events(position, _EVENTS, channel=channel)
            if not page:
                if not follow:
                    break
                _wait(woken, stop, pool.poll_seconds)
                continue
            for trajectory_id in _ended(page):
                _derive_one(pool, trajectory_id, thresholds, total)
            position = page[-1].sequence
            revision = pool.save_follower(name, position, revision=revision).revision
            progress("trajectories", total.trajectories, None)
            if done is not None:
                done(total)
    finally:
        unwatch()
    return total


def _wait(woken: threading.Event, stop: threading.Event, seconds: float) -> None:
    """Until something woke it, it is to stop, or the time is over."""
    until = time.monotonic() + seconds
    while not stop.is_set() and time.monotonic() < until and not woken.wait(_LOOK):
        pass


def _ended(events: Sequence[Event]) -> list[str]:
    """Trajectories that ended, or got a step after that."""
    found: dict[str, None] = {}
    for event in events:
        is_late = event.kind == "step.appended" and event.data.get("outcome") == "late"
        if event.trajectory_id is not None and (is_late or event.kind == "trajectory.completed"):
            found[event.trajectory_id] = None
    return list(found)


def _derive_one(pool: Pool, trajectory_id: str, thresholds: Thresholds, total: Derived) -> None:
    try:
        trajectory = pool.get_trajectory(trajectory_id)
        if trajectory.step_count > MOST_STEPS:
            total.too_long += 1
            return
        total.trajectories += 1
        found = implied(trajectory, _steps(pool, trajectory_id), thresholds)
        for start in range(0, len(found), _SIGNALS):
            _store(pool, found[start : start + _SIGNALS], total)
    except (NotFoundError, GoneError):
        return  # It was deleted since.


def _store(pool: Pool, found: Sequence[Feedback], total: Derived) -> None:
    for source in dict.fromkeys(one.source for one in found):
        total.signals[source] += pool.add_signals([one for one in found if one.source == source]).changed


def _steps(pool: Pool, trajectory_id: str) -> list[Step]:
    found: list[Step] = []
    cursor: str | None = None
    while True:
        page = pool.list_steps(trajectory_id=trajectory_id, cursor=cursor, limit=_STEPS, include=("messages",))
        found += page.items
        if page.next_cursor is None:
            return found
        cursor = page.next_cursor
