"""Curation over HTTP, for threads and for event loops: policies, decisions, reviews, and what evaluators said."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from agentworld.client import curation_calls as calls
from agentworld.client.calls import Call
from agentworld.pool.keeping.records import Progress, no_progress
from agentworld.pool.results import Page
from agentworld.records import (
    ActivePolicy,
    CurationPolicy,
    CurationPreview,
    Decision,
    Evaluation,
    EvaluationState,
    EvaluationTarget,
    NewReview,
    Review,
    ReviewState,
    ReviewVerdict,
    Standing,
)

T = TypeVar("T")
Work = Generator[Call[Any] | float, Any, T]
"""What takes several calls: it yields a call and is sent its reply, or seconds to wait."""
LOOK_SECONDS = (0.02, 1.0)  # between two looks at how far a server has come: at first, and at most
STALLED_SECONDS = 15.0  # after so long without any progress, the server is asked to go on


class CurationMethods(ABC):
    """The methods of a factory that are about curation; what each does is said in agentworld.pool.curation_methods."""

    @abstractmethod
    def _send(self, call: Call[T]) -> T:
        """Send a call and read its reply."""

    @abstractmethod
    def _read(self, call: Call[T]) -> T | None:
        """As `_send`, but None where the reply has no content."""

    def set_curation(
        self, policy: CurationPolicy, *, source: str = "api", progress: Progress = no_progress
    ) -> ActivePolicy:
        """See Pool. The server decides everything anew, whether or not the client stays to hear of it."""
        return self._drive(_setting(policy, source, progress))

    def clear_curation(self, channel: str, *, progress: Progress = no_progress) -> bool:
        """See Pool. As for `set_curation`."""
        return self._drive(_clearing(channel, progress))

    def curation(self, channel: str | None = None) -> list[ActivePolicy]:
        """See Pool."""
        return self._send(calls.curation(channel)).items

    def list_curations(self, channel: str | None = None, *, limit: int = 100) -> list[ActivePolicy]:
        """See Pool."""
        return self._send(calls.list_curations(channel, limit)).items

    def try_curation(
        self, policy: CurationPolicy, *, samples: int = 5, limit: int | None = None, progress: Progress = no_progress
    ) -> CurationPreview:
        """See Pool. Of progress over HTTP only the beginning and the end are told."""
        progress("look", 0, limit)
        found = self._send(calls.try_curation(policy, samples, limit))
        progress("look", found.trajectories, found.trajectories)
        return found

    def decide(self, decisions: Sequence[Decision]) -> int:
        """See Pool."""
        return self._send(calls.decide(decisions)).changed

    def decisions(self, *, trajectory_id: str | None = None, step_id: str | None = None) -> list[Decision]:
        """See Pool."""
        return self._send(calls.decisions(trajectory_id, step_id)).items

    def explain_standing(self, *, trajectory_id: str | None = None, step_id: str | None = None) -> Standing:
        """See Pool."""
        return self._send(calls.standing(trajectory_id, step_id))

    def add_reviews(self, reviews: Sequence[NewReview]) -> int:
        """See Pool."""
        return self._send(calls.add_reviews(reviews)).changed

    def list_reviews(
        self,
        *,
        state: ReviewState | None = None,
        channel: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Review]:
        """See Pool."""
        return self._send(calls.list_reviews(state, channel, cursor, limit))

    def get_review(self, review_id: int) -> Review:
        """See Pool."""
        return self._send(calls.get_review(review_id))

    def claim_review(self, by: str, *, channel: str | None = None, seconds: float = 600.0) -> Review | None:
        """See Pool."""
        return self._read(calls.claim_review(by, channel, seconds))

    def skip_review(self, review_id: int, by: str) -> Review:
        """See Pool."""
        return self._send(calls.skip_review(review_id, by))

    def resolve_review(self, review_id: int, by: str, verdict: ReviewVerdict, comment: str | None = None) -> Review:
        """See Pool."""
        return self._send(calls.resolve_review(review_id, by, verdict, comment))

    def undo_review(self, review_id: int, by: str) -> Review:
        """See Pool."""
        return self._send(calls.undo_review(review_id, by))

    def list_evaluations(
        self,
        *,
        evaluator: str | None = None,
        target: EvaluationTarget | None = None,
        target_id: str | None = None,
        state: EvaluationState | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Evaluation]:
        """See Pool."""
        return self._send(
            calls.list_evaluations(
                evaluator=evaluator, target=target, target_id=target_id, state=state, cursor=cursor, limit=limit
            )
        )

    def _drive(self, work: Work[T]) -> T:
        answer: Any = None
        while True:
            try:
                asked = work.send(answer)
            except StopIteration as done:
                result: T = done.value
                return result
            answer = time.sleep(asked) if isinstance(asked, float) else self._send(asked)  # type: ignore[func-returns-value]


class AsyncCurationMethods(ABC):
    """As CurationMethods, for event loops."""

    @abstractmethod
    async def _send(self, call: Call[T]) -> T:
        """Send a call and read its reply."""

    @abstractmethod
    async def _read(self, call: Call[T]) -> T | None:
        """As `_send`, but None where the reply has no content."""

    async def set_curation(
        self, policy: CurationPolicy, *, source: str = "api", progress: Progress = no_progress
    ) -> ActivePolicy:
        """See Pool. The server decides everything anew, whether or not the client stays to hear of it."""
        return await self._drive(_setting(policy, source, progress))

    async def clear_curation(self, channel: str, *, progress: Progress = no_progress) -> bool:
        """See Pool. As for `set_curation`."""
        return await self._drive(_clearing(channel, progress))

    async def curation(self, channel: str | None = None) -> list[ActivePolicy]:
        """See Pool."""
        return (await self._send(calls.curation(channel))).items

    async def list_curations(self, channel: str | None = None, *, limit: int = 100) -> list[ActivePolicy]:
        """See Pool."""
        return (await self._send(calls.list_curations(channel, limit))).items

    async def try_curation(
        self, policy: CurationPolicy, *, samples: int = 5, limit: int | None = None, progress: Progress = no_progress
    ) -> CurationPreview:
        """See Pool. Of progress over HTTP only the beginning and the end are told."""
        progress("look", 0, limit)
        found = await self._send(calls.try_curation(policy, samples, limit))
        progress("look", found.trajectories, found.trajectories)
        return found

    async def decide(self, decisions: Sequence[Decision]) -> int:
        """See Pool."""
        return (await self._send(calls.decide(decisions))).changed

    async def decisions(self, *, trajectory_id: str | None = None, step_id: str | None = None) -> list[Decision]:
        """See Pool."""
        return (await self._send(calls.decisions(trajectory_id, step_id))).items

    async def explain_standing(self, *, trajectory_id: str | None = None, step_id: str | None = None) -> Standing:
        """See Pool."""
        return await self._send(calls.standing(trajectory_id, step_id))

    async def add_reviews(self, reviews: Sequence[NewReview]) -> int:
        """See Pool."""
        return (await self._send(calls.add_reviews(reviews))).changed

    async def list_reviews(
        self,
        *,
        state: ReviewState | None = None,
        channel: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Review]:
        """See Pool."""
        return await self._send(calls.list_reviews(state, channel, cursor, limit))

    async def get_review(self, review_id: int) -> Review:
        """See Pool."""
        return await self._send(calls.get_review(review_id))

    async def claim_review(self, by: str, *, channel: str | None = None, seconds: float = 600.0) -> Review | None:
        """See Pool."""
        return await self._read(calls.claim_review(by, channel, seconds))

    async def skip_review(self, review_id: int, by: str) -> Review:
        """See Pool."""
        return await self._send(calls.skip_review(review_id, by))

    async def resolve_review(
        self, review_id: int, by: str, verdict: ReviewVerdict, comment: str | None = None
    ) -> Review:
        """See Pool."""
        return await self._send(calls.resolve_review(review_id, by, verdict, comment))

    async def undo_review(self, review_id: int, by: str) -> Review:
        """See Pool."""
        return await self._send(calls.undo_review(review_id, by))

    async def list_evaluations(
        self,
        *,
        evaluator: str | None = None,
        target: EvaluationTarget | None = None,
        target_id: str | None = None,
        state: EvaluationState | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Evaluation]:
        """See Pool."""
        return await self._send(
            calls.list_evaluations(
                evaluator=evaluator, target=target, target_id=target_id, state=state, cursor=cursor, limit=limit
            )
        )

    async def _drive(self, work: Work[T]) -> T:
        answer: Any = None
        while True:
            try:
                asked = work.send(answer)
            except StopIteration as done:
                result: T = done.value
                return result
            answer = await (asyncio.sleep(asked) if isinstance(asked, float) else self._send(asked))


def _setting(policy: CurationPolicy, source: str, progress: Progress) -> Work[ActivePolicy]:
    active: ActivePolicy = yield calls.set_curation(policy, source)

    def left(found: Page[ActivePolicy]) -> int:
        nonlocal active
        # Where another one took its place meanwhile, that one's sweep is not waited for.
        if not found.items or found.items[0].version != active.version:
            return 0
        active = found.items[0]
        return active.pending

    again = calls.set_curation(policy, source)
    yield from _waiting(active.pending, calls.curation(policy.channel), left, again, progress)
    return active


def _clearing(channel: str, progress: Progress) -> Work[bool]:
    done = yield calls.clear_curation(channel)

    def left(found: Page[ActivePolicy]) -> int:
        return sum(one.pending for one in found.items if one.ended_at is not None)

    look, again = calls.list_curations(channel, 100), calls.clear_curation(channel)
    yield from _waiting(done.pending, look, left, again, progress)
    return bool(done.cleared)


def _waiting(
    pending: int, look: Call[Any], left: Callable[[Any], int], go_on: Call[Any], progress: Progress
) -> Work[None]:
    """Until nothing is pending. `left` says of the answer to `look` how much is; `go_on` makes a server do it that was
    broken off.
    """
    most = last = pending
    pause, since = LOOK_SECONDS[0], time.monotonic()
    while last > 0:
        progress("decide", most - last, most)
        yield pause
        pause = min(2 * pause, LOOK_SECONDS[1])
        now = left((yield look))
        if now < last:
            since = time.monotonic()
        elif time.monotonic() - since > STALLED_SECONDS:
            yield go_on
            since = time.monotonic()
        most, last = max(most, now), now
    progress("decide", most, most)
