"""What is known of an engine's health: marks that failed calls leave, probes, and tries after a while."""

from __future__ import annotations

from agentworld.engines.base import EngineAbortedError, EngineBusyError
from agentworld.errors import AgentWorldError, EngineError, EngineUnreachableError
from agentworld.gateway.clock import Clock

FAULTS = 3
"""So many faults of an engine in a row take it out of service; that it cannot be reached does so at once."""
FIRST_REST, LONGEST_REST = 1.0, 30.0
"""Seconds for which an engine that failed is passed over; doubled each time that it fails again."""


class Health:
    """One engine's. After its rest, one call at a time may try it (half open), until one succeeds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._faults = 0
        self._rests = 0
        self._until = 0.0
        self._trial: int | None = None
        self._trials = 0
        self._unreachable = False
        self.error: str | None = None
        """The latest failure, until a success."""

    @property
    def sound(self) -> bool:
        """Whether no failure stands against it."""
        return self._rests == 0

    @property
    def usable(self) -> bool:
        """Whether a call may be sent to it now."""
        return self.sound or (self._trial is None and self._clock.now() >= self._until)

    def begin(self) -> int | None:
        """A call goes to it; where that is the one which tries the engine, the number of the trial."""
        if self.sound or self._trial is not None:
            return None
        self._trials += 1
        self._trial = self._trials
        return self._trial

    def end(self, trial: int | None) -> None:
        """A call ended without a word on the engine's health: its client left, or it asked for something wrong.
        `trial`: what `begin` said; calls that began before the engine failed end no trial.
        """
        if trial == self._trial:
            self._trial = None

    def succeed(self) -> None:
        """It answered."""
        self._faults = self._rests = 0
        self._trial = None
        self._unreachable = False
        self.error = None

    def fail(self, error: AgentWorldError, trial: int | None = None) -> None:
        """A call failed. That the engine is busy, that its weights change, or that the caller was wrong is no mark."""
        self.end(trial)
        if not isinstance(error, EngineError) or isinstance(error, EngineBusyError | EngineAbortedError):
            return
        self.error = error.one_line()
        self._faults += 1
        unreachable = isinstance(error, EngineUnreachableError)
        if unreachable or self._faults >= FAULTS or not self.sound:
            self._unreachable = unreachable
            self._until = self._clock.now() + min(FIRST_REST * 2**self._rests, LONGEST_REST)
            self._rests = min(self._rests + 1, 16)

    def probed(self, error: AgentWorldError | None) -> None:
        """A probe ended. A good one takes back that it cannot be reached, and no other mark: only a reply can."""
        if error is not None:
            self.fail(error if isinstance(error, EngineUnreachableError) else EngineUnreachableError(error.message))
        elif self._unreachable:
            self.succeed()
