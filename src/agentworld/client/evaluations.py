"""What evaluators said, and where runs of them are, over HTTP: for threads and for event loops."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeVar

from agentworld.client import evaluation_calls as calls
from agentworld.client.calls import Call
from agentworld.records import Evaluation, Follower

T = TypeVar("T")


class EvaluationMethods(ABC):
    """The methods of a factory that runs of evaluators need; see agentworld.pool.curation_methods.

    Followers are those of runs of evaluators alone, whose names begin with `reward:`.
    """

    @abstractmethod
    def _send(self, call: Call[T]) -> T:
        """Send a call and read its reply."""

    def put_evaluations(self, evaluations: Sequence[Evaluation]) -> int:
        """See Pool."""
        return self._send(calls.put_evaluations(evaluations)).kept

    def known_evaluations(self, fingerprint: bytes, contents: Sequence[bytes]) -> dict[bytes, Evaluation]:
        """See Pool."""
        return {one.content: one for one in self._send(calls.known_evaluations(fingerprint, contents)).items}

    def load_follower(self, name: str) -> Follower | None:
        """See Pool."""
        return self._send(calls.load_follower(name)).follower

    def save_follower(self, name: str, position: int, state: bytes | None = None, *, revision: int = 0) -> Follower:
        """See Pool. The state takes up to 1 MiB."""
        return self._send(calls.save_follower(name, position, state, revision))


class AsyncEvaluationMethods(ABC):
    """As EvaluationMethods, for event loops."""

    @abstractmethod
    async def _send(self, call: Call[T]) -> T:
        """Send a call and read its reply."""

    async def put_evaluations(self, evaluations: Sequence[Evaluation]) -> int:
        """See Pool."""
        return (await self._send(calls.put_evaluations(evaluations))).kept

    async def known_evaluations(self, fingerprint: bytes, contents: Sequence[bytes]) -> dict[bytes, Evaluation]:
        """See Pool."""
        return {one.content: one for one in (await self._send(calls.known_evaluations(fingerprint, contents))).items}

    async def load_follower(self, name: str) -> Follower | None:
        """See Pool."""
        return (await self._send(calls.load_follower(name))).follower

    async def save_follower(
        self, name: str, position: int, state: bytes | None = None, *, revision: int = 0
    ) -> Follower:
        """See Pool. The state takes up to 1 MiB."""
        return await self._send(calls.save_follower(name, position, state, revision))
