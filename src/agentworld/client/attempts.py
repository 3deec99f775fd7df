"""Attempts at one rollout, so that the group of a rollout that failed and is tried again does not close too early."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType

import msgspec

from agentworld.client.session import TrajectorySession
from agentworld.errors import InvalidRequestError
from agentworld.records import NewTrajectory


class Attempt(TrajectorySession):
    """A trajectory whose `with` block may fail: the next attempt then begins before this one ends."""

    following: TrajectorySession | None = None
    begin_next: Callable[[], TrajectorySession] | None = None  # None for the last attempt, whose error is raised

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        try:
            if isinstance(error, Exception) and self.begin_next is not None and not self.ended:
                # In this order: a rollout has ended once all of its attempts have, and then its group may be full.
                self.following = self.begin_next()
        finally:
            super().__exit__(kind, error, trace)
        return self.following is not None


def attempts(begin: Callable[[NewTrajectory], Attempt], new: NewTrajectory, times: int) -> Iterator[Attempt]:
    """Up to `times` attempts at one rollout, one after the other until one does not raise."""
    if times < 1:
        raise InvalidRequestError(f"times must be at least 1, not {times}", path="times")
    if new.trajectory_id is not None:
        raise InvalidRequestError("each attempt is a trajectory of its own", path="trajectory_id", hint="Leave it out")
    if new.group_id is not None and new.rollout_index is None:
        raise InvalidRequestError(
            "attempts at one rollout of a group share its rollout_index", path="rollout_index", hint="Give it"
        )
    return _attempts(begin, new, times)


def _attempts(begin: Callable[[NewTrajectory], Attempt], new: NewTrajectory, times: int) -> Iterator[Attempt]:
    current = begin(new)
    for number in range(1, times + 1):
        following: list[Attempt] = []
        if number < times:
            next_one = msgspec.structs.replace(new, attempt=new.attempt + number)

            def begin_next(again: NewTrajectory = next_one, begun: list[Attempt] = following) -> Attempt:
                begun.append(begin(again))
                return begun[0]

            current.begin_next = begin_next
        yield current
        if not following:
            return
        current = following[0]
