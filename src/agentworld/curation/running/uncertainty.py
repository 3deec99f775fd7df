"""What judges are unsure of, or disagree on, put to people: reviews from evaluations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from agentworld.curation.running.settings import ReviewSettings
from agentworld.errors import NotFoundError
from agentworld.pool.protocol import Pool
from agentworld.records import Evaluation, NewReview

PAGE = 200


class Doubts:
    """Goes over evaluations in the order in which they were kept, page by page."""

    def __init__(self, pool: Pool, settings: ReviewSettings, channel: str | None) -> None:
        self._pool = pool
        self._settings = settings
        self._channel = channel

    def go_on(self, cursor: str | None) -> tuple[str | None, int]:
        """From a cursor to the end: the cursor before the last page, to go on from, and how many reviews that made."""
        asked = 0
        while True:
            page = self._pool.list_evaluations(state="ok", cursor=cursor, limit=PAGE)
            reviews = [each for one in page.items for each in self._reviews(one)]
            asked += self._ask(reviews)
            if page.next_cursor is None:
                return cursor, asked
            cursor = page.next_cursor

    def _reviews(self, said: Evaluation) -> Iterator[NewReview]:
        if said.target == "group":
            return  # What is said of each member is an evaluation of its own.
        unsure = self._unsure(said.details)
        if unsure is not None:
            yield self._of(said, f"{said.evaluator} is unsure ({unsure:.2f})", unsure)
        elif said.evaluator in self._settings.judges and (found := self._disagreement(said)) is not None:
            yield found
        for step_id, of_step in _steps(said):
            if (unsure := self._unsure(of_step)) is not None:
                reason = f"{said.evaluator} is unsure ({unsure:.2f})"
                yield NewReview(reason=reason[:500], step_id=step_id, origin="uncertainty", worth=unsure)

    def _unsure(self, details: Any) -> float | None:
        """How unsure an evaluator says that it is, where that is enough to ask people."""
        found = _number(details.get("uncertainty")) if isinstance(details, dict) else None
        return min(found, 1e6) if found is not None and found >= self._settings.uncertainty and found > 0 else None

    def _disagreement(self, said: Evaluation) -> NewReview | None:
        page = self._pool.list_evaluations(target=said.target, target_id=said.target_id, state="ok", limit=PAGE)
        others = [one for one in page.items if one.evaluator in self._settings.judges]
        widest: tuple[float, str] | None = None
        for name in sorted(said.values):
            values = {one.evaluator: one.values[name] for one in others if name in one.values}
            apart = max(values.values(), default=0.0) - min(values.values(), default=0.0)
            if apart >= self._settings.disagreement and (widest is None or apart > widest[0]):
                told = ", ".join(f"{judge} {values[judge]:.2f}" for judge in sorted(values))
                widest = apart, f"judges disagree on {name}: {told}"
        return None if widest is None else self._of(said, widest[1], widest[0])

    def _of(self, said: Evaluation, reason: str, worth: float) -> NewReview:
        on_step = said.target == "step"
        return NewReview(
            reason=reason[:500],
            trajectory_id=None if on_step else said.target_id,
            step_id=said.target_id if on_step else None,
            origin="uncertainty",
            worth=min(worth, 1e6),
        )

    def _ask(self, reviews: Iterable[NewReview]) -> int:
        asked = 0
        for each in reviews:
            try:
                if self._channel is None or self._channel_of(each) == self._channel:
                    asked += self._pool.add_reviews([each])
            except NotFoundError:
                continue  # Deleted since.
        return asked

    def _channel_of(self, review: NewReview) -> str:
        if review.step_id is not None:
            return self._pool.get_step(review.step_id, include=()).channel
        return self._pool.get_trajectory(review.trajectory_id or "").channel


def _steps(said: Evaluation) -> list[tuple[str, Any]]:
    """The details of each step, where an evaluator has judged those of a trajectory."""
    kept = said.details.get("steps") if isinstance(said.details, dict) else None
    if said.target != "trajectory" or not isinstance(kept, dict):
        return []
    return [(step_id, each.get("details")) for step_id, each in kept.items() if isinstance(each, dict)]


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
