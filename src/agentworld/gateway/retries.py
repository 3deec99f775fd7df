"""Which trajectory an anonymous call went to, so that its retry goes there too and takes no other rollout's place."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

MAX_EQUAL = 4096
"""So many equal calls of one key are told apart."""
MAX_CALLS = 50_000
"""So many calls are remembered in all: some 20 MB."""
FAILED_SECONDS = 120.0
"""How long a retry of a failed call is waited for."""
WAITING_SECONDS = 900.0
"""How long a call may wait for its reply; after that its client is taken to be gone."""


State = Literal["waiting", "failed", "answered"]


class _Served(NamedTuple):
    state: State
    since: float


class Retries:
    """Key and body of a call -> the trajectories that served it. `limit`: so many calls in all, be their bodies
    equal or not; least recently used bodies go first.

    Rollouts of one task send equal bodies for a while. Their retries cannot be told apart, but who has its reply has no
    reason to ask again: a retry goes to the trajectory whose call failed last, else to the one whose call waits longest
    for its reply, else to the one that was answered last.
    """

    def __init__(self, limit: int = MAX_CALLS, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._served: OrderedDict[tuple[bytes, str], dict[str, _Served]] = OrderedDict()
        self._calls = 0

    def __len__(self) -> int:
        return len(self._served)

    def asked(self, key: bytes, body_digest: str, trajectory_id: str) -> None:
        """Remember that a call with this body goes to the trajectory."""
        place = (key, body_digest)
        served = self._served.setdefault(place, {})
        self._calls += served.pop(trajectory_id, None) is None
        served[trajectory_id] = _Served("waiting", self._clock())
        if len(served) > MAX_EQUAL:
            del served[next(iter(served))]
            self._calls -= 1
        self._served.move_to_end(place)
        while self._calls > self._limit and len(self._served) > 1:
            self._calls -= len(self._served.popitem(last=False)[1])

    def answered(self, key: bytes, body_digest: str, trajectory_id: str) -> None:
        """Remember that the call has its reply."""
        if (key, body_digest) in self._served:
            self._ended(key, body_digest, trajectory_id, "answered")

    def failed(self, key: bytes, body_digest: str, trajectory_id: str) -> None:
        """Remember that the call ended with an error, or was left by its client."""
        self._ended(key, body_digest, trajectory_id, "failed")

    def _ended(self, key: bytes, body_digest: str, trajectory_id: str, state: Literal["failed", "answered"]) -> None:
        served = self._served.get((key, body_digest))
        if served is not None and served.pop(trajectory_id, None) is not None:
            served[trajectory_id] = _Served(state, self._clock())

    def find(self, key: bytes, body_digest: str, elsewhere: Sequence[tuple[str, State]] = ()) -> str | None:
        """The trajectory that a retry of this call belongs to. `elsewhere`: what other processes did with it."""
        served = self._served.get((key, body_digest), {})
        now = self._clock()

        def in_state(state: State, seconds: float) -> list[str]:
            here = [name for name, (own, since) in served.items() if own == state and now - since <= seconds]
            return here or [name for name, own in elsewhere if own == state and name not in served]

        for found in (
            in_state("failed", FAILED_SECONDS)[-1:],
            in_state("waiting", WAITING_SECONDS)[:1],
            in_state("answered", float("inf"))[-1:],
        ):
            if found:
                return found[0]
        return None
