"""Marks of calls, in memory."""

from __future__ import annotations

from collections.abc import Sequence

from agentworld.pool.call_marks import ASKED_SECONDS, CallMark, next_waiting
from agentworld.pool.media import read_digest
from agentworld.pool.memory.store_base import MemoryStore
from agentworld.records import check_id


class CallMarkMethods(MemoryStore):
    """See Pool."""

    def mark_call(self, trajectory_id: str, mark: str) -> None:
        """See Pool."""
        check_id(trajectory_id, "trajectory_id")
        with self._open():
            state = self._state
            now = state.clock()
            state.marks.setdefault((read_digest(mark), trajectory_id), CallMark(trajectory_id, "asked", now))
            for place, known in list(state.marks.items()):
                if known.said == "asked" and known.at < now - ASKED_SECONDS:
                    del state.marks[place]

    def find_marks(self, marks: Sequence[str]) -> list[CallMark]:
        """See Pool."""
        with self._open():
            latest: dict[str, float] = {}
            for (_, trajectory_id), known in self._state.marks.items():
                if known.said in ("reply", "taken"):
                    latest[trajectory_id] = max(known.at, latest.get(trajectory_id, known.at))
            for mark in marks:
                named = read_digest(mark)
                found = [
                    known
                    for (own, trajectory_id), known in self._state.marks.items()
                    if own == named and self._takes_calls(trajectory_id)
                ]
                if found:
                    return [
                        CallMark(
                            one.trajectory_id,
                            one.said,
                            one.at,
                            one.said == "reply" and one.at >= latest[one.trajectory_id],
                            max(self._state.clock() - one.at, 0.0),
                        )
                        for one in sorted(found, key=lambda one: (one.at, one.trajectory_id))
                    ]
        return []

    def take_reply(self, marks: Sequence[str]) -> str | None:
        """See Pool."""
        with self._open():
            for mark in marks:
                if rows := self.find_marks([mark]):
                    break
            else:
                return None
            found = next_waiting(rows)
            if len(rows) > 1 and found is not None:
                place = read_digest(mark), found.trajectory_id
                self._state.marks[place] = CallMark(found.trajectory_id, "taken", found.at)
            return (found or rows[-1]).trajectory_id

    def _takes_calls(self, trajectory_id: str) -> bool:
        """Whether it is open, or not there yet."""
        there = self._state.trajectories.get(trajectory_id)
        return there is None or there.status == "open"
