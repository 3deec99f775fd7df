"""Which trajectory an anonymous call went to, so that its retry goes there too and takes no other rollout's place."""

from __future__ import annotations

from collections import OrderedDict

MAX_EQUAL = 4096
"""So many equal calls of one key are told apart."""


class Retries:
    """Key and body of a call -> the trajectories that served it. Bounded, least recently used first out.

    Rollouts of one task send equal bodies for a while. Their retries cannot be told apart, but who has its reply has no
    reason to ask again: a retry goes to the trajectory whose call waits longest for its reply, else to the one that
    was answered last.
    """

    def __init__(self, limit: int = 50_000) -> None:
        self._limit = limit
        self._served: OrderedDict[tuple[bytes, str], dict[str, bool]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._served)

    def asked(self, key: bytes, body_digest: str, trajectory_id: str) -> None:
        """Remember that a call with this body goes to the trajectory."""
        place = (key, body_digest)
        served = self._served.setdefault(place, {})
        served.pop(trajectory_id, None)
        served[trajectory_id] = False
        if len(served) > MAX_EQUAL:
            del served[next(iter(served))]
        self._served.move_to_end(place)
        while len(self._served) > self._limit:
            self._served.popitem(last=False)

    def answered(self, key: bytes, body_digest: str, trajectory_id: str) -> None:
        """Remember that the call has its reply."""
        served = self._served.get((key, body_digest))
        if served is not None and served.pop(trajectory_id, None) is not None:
            served[trajectory_id] = True

    def find(self, key: bytes, body_digest: str) -> str | None:
        """The trajectory that a retry of this call belongs to."""
        served = self._served.get((key, body_digest), {})
        waiting = (trajectory for trajectory, done in served.items() if not done)
        return next(waiting, None) or next(reversed(served), None)
