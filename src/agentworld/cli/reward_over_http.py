"""A server as runs of evaluators use a pool: asked again and again for events, and waited for where it is away."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from agentworld.client.factory import Factory
from agentworld.errors import AgentWorldError, ConflictError
from agentworld.records import Follower

POLL_SECONDS = 1.0  # between two looks at the events of a server
PATIENCE = 60.0  # seconds that a server which has answered before may be away, as while it is begun again
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 5.0
_AWAY = (502, 503, 504)
T = TypeVar("T")


class OverHttp:
    """What `run_rewards` uses of a pool, of a server. `stop` ends waiting for one that is away."""

    poll_seconds = POLL_SECONDS

    def __init__(self, factory: Factory, stop: threading.Event) -> None:
        self._factory = factory
        self._stop = stop
        self._has_answered = False

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Nobody is woken."""
        return lambda: None

    def save_follower(self, name: str, position: int, state: bytes | None = None, *, revision: int = 0) -> Follower:
        """See Pool. A save whose answer was lost is not taken for another process's."""

        def save() -> Follower:
            try:
                return self._factory.save_follower(name, position, state, revision=revision)
            except ConflictError:
                there = self._factory.load_follower(name)
                if there is not None and (there.revision, there.position, there.state) == (
                    revision + 1,
                    position,
                    state,
                ):
                    return there
                raise

        return self._patiently(save)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._factory, name)
        return lambda *given, **named: self._patiently(lambda: method(*given, **named))

    def _patiently(self, call: Callable[[], T]) -> T:
        """What the call returns, tried again for a while where the server, which has answered before, is away."""
        until, pause = time.monotonic() + PATIENCE, FIRST_PAUSE
        while True:
            try:
                found = call()
            except AgentWorldError as error:
                away = self._has_answered and error.status in _AWAY
                if not away or time.monotonic() > until or self._stop.wait(pause):
                    raise
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                self._has_answered = True
                return found
