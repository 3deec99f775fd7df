"""Log-probabilities of sampled tokens under another model, from any engine that scores prompts, kept as annotations.

A step's prompt and reply go to the engine as one prompt of ids, so nothing is tokenised again: its vocabulary must be
that of the steps. The numbers are raw: of the teacher's own distribution, without a temperature.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, Protocol

import msgspec

from agentworld.pool.protocol import Consumer, Page
from agentworld.records import Annotation, BatchSpec, Event, Step
from agentworld.trainers.rows import has_images
from agentworld.trainers.scorers import Scorer, TeacherSettings

PAGE, IDS_AT_ONCE = 100, 20
LOOK_SECONDS = 1.0
"""How long one who waits for a batch waits before the teacher scores what came meanwhile."""
_CHOSEN_FROM_ALL = ("random", "priority")


class ScoredSource(Protocol):
    """The part of a pool that scoring needs."""

    def list_steps(
        self,
        *,
        where: str | None = None,
        channel: str | None = None,
        order: Literal["oldest", "newest"] = "oldest",
        cursor: str | None = None,
        limit: int = 100,
        include: Sequence[str] = (),
    ) -> Page[Step]:
        """See Pool.list_steps."""

    def events(self, after: int = 0, limit: int = 1000, *, channel: str | None = None) -> list[Event]:
        """See Pool.events."""

    def add_annotations(self, annotations: Sequence[Annotation]) -> int:
        """See Pool.add_annotations."""


class Scoring:
    """Scores the steps of a channel that lack the annotation `name`, a page at a time: those that are there, then as
    they come; with `newest` what came last first. `heard` is told after each step how many were scored in all.
    """

    def __init__(
        self,
        source: ScoredSource,
        scorer: Scorer,
        settings: TeacherSettings,
        channel: str,
        name: str,
        *,
        newest: bool = False,
        heard: Callable[[int], None] | None = None,
    ) -> None:
        self._source, self._scorer, self._settings = source, scorer, settings
        self._channel, self._name = channel, name
        lacking = f"has tokens and response_length > 0 and not has annotation.{name} and not excluded"
        self._where = lacking if settings.where is None else f"{lacking} and ({settings.where})"
        self._order: Literal["oldest", "newest"] = "newest" if newest else "oldest"
        self._heard = heard
        self._scored = 0
        self._after: int | None = None
        self._walking = True
        self._cursor: str | None = None
        self._named: deque[str] = deque()

    def score_new(self) -> int:
        """Score all that lacks it now; returns how many steps that were."""
        total = 0
        while scored := self.score_some():
            total += scored
        return total

    def score_some(self) -> int:
        """Score what lacks it, a page at most; returns how many steps that were, 0 where there are none. After the walk
        over the steps of the channel only those that events name are looked at.
        """
        if self._after is None:
            self._after = self._last_event()  # What comes while it walks is named by an event after it.
        ways = (self._backlog, self._come) if self._order == "oldest" else (self._come, self._backlog)
        return ways[0]() or ways[1]()

    def _backlog(self) -> int:
        while self._walking:
            scored, self._cursor = self._score(self._where, self._cursor, order=self._order)
            self._walking = self._cursor is not None
            if scored:
                return scored
        return 0

    def _come(self) -> int:
        while True:
            if not self._named:
                events = self._source.events(self._after or 0, PAGE, channel=self._channel)
                if not events:
                    return 0
                self._named.extend(event.step_id for event in events if event.kind == "step.appended" and event.step_id)
                self._after = events[-1].sequence
            some = [self._named.popleft() for _ in range(min(IDS_AT_ONCE, len(self._named)))]
            if not some:
                continue
            ids = ", ".join(f"'{step_id}'" for step_id in some)  # Ids hold no quotes.
            where = f"step_id in ({ids}) and {self._where}"
            scored, cursor = self._score(where, None)
            while cursor is not None:  # Pages may be short.
                more, cursor = self._score(where, cursor)
                scored += more
            if scored:
                return scored

    def _last_event(self) -> int:
        """The sequence of the channel's last event, or one after it, in few looks."""
        low, high = 0, 1
        while self._source.events(high, 1, channel=self._channel):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            if self._source.events(middle, 1, channel=self._channel):
                low = middle
            else:
                high = middle
        return high if self._source.events(low, 1, channel=self._channel) else low

    def _score(
        self, where: str, cursor: str | None, *, order: Literal["oldest", "newest"] = "oldest"
    ) -> tuple[int, str | None]:
        """Score one page; how many steps that were, and where the next one begins."""
        page = self._source.list_steps(
            where=where, channel=self._channel, order=order, cursor=cursor, limit=PAGE, include=("tokens", "messages")
        )
        steps = [step for step in page.items if not has_images(step)]  # Another model would not see them either.
        with ThreadPoolExecutor(self._settings.concurrency) as threads:
            # Engines compute several at once; each is stored as it comes, so that a stop loses few.
            try:
                for annotations in threads.map(self._annotations, steps):
                    self._source.add_annotations(annotations)
                    self._scored += 1
                    if self._heard is not None:
                        self._heard(self._scored)
            finally:  # Where one cannot be stored, the teacher is not asked for the rest.
                threads.shutdown(wait=False, cancel_futures=True)
        return len(steps), page.next_cursor

    def _annotations(self, step: Step) -> list[Annotation]:
        reply = step.response_ids or []
        found = self._scorer.score(step.prompt_ids or [], reply, self._settings.top_k)
        stem = self._name.removesuffix("_logprobs")
        arrays: list[tuple[str, Any, str]] = []
        if self._settings.top_k:  # The one that is looked for comes last: where it is, all are.
            arrays.append((f"{stem}_top_ids", found.top_ids, "int32"))
            arrays.append((f"{stem}_top_logprobs", found.top_logprobs, "float32"))
        arrays.append((self._name, found.logprobs, "float32"))
        source = f"teacher:{self._settings.model}"
        return [
            Annotation(name=name, values=values, dtype=dtype, step_id=step.step_id, source=source)
            for name, values, dtype in arrays
        ]


class ScoredConsumer:
    """A consumer for whom a teacher scores what the next batch needs: page after page, until there is a whole one.

    Of orders that choose among everything that waits (random, priority) all of that is scored first.
    """

    def __init__(self, consumer: Consumer, scoring: Scoring, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = consumer.name
        self._consumer, self._scoring, self._clock = consumer, scoring, clock

    def resume(self, applied: Sequence[str]) -> dict[str, list[str]]:
        """See Pool.resume."""
        return self._consumer.resume(applied)

    def lease(self, spec: BatchSpec) -> Any:
        """One LeasedBatch or None."""
        return self._lease(spec)[0]

    def stream(self, spec: BatchSpec, *, timeout: float | None = None) -> Iterator[Any]:
        """Leased batches as they become available; what is scored meanwhile counts as something that came."""
        patience = math.inf if timeout is None else timeout
        deadline = self._clock() + patience
        while True:
            leased, scored = self._lease(spec)
            if scored:
                deadline = self._clock() + patience
            if leased is None:
                wait = min(LOOK_SECONDS, max(0.0, deadline - self._clock()))
                leased = next(self._consumer.stream(spec, timeout=wait), None)
            if leased is not None:
                yield leased
                deadline = self._clock() + patience
            elif self._clock() >= deadline:
                return

    def _lease(self, spec: BatchSpec) -> tuple[Any, int]:
        """A batch, and how many steps were scored for it; one of less than the full size only where nothing is left to
        be scored.
        """
        spec = spec.resolved()
        whole = msgspec.structs.replace(spec, min_size=spec.count)
        scored = self._scoring.score_new() if spec.order in _CHOSEN_FROM_ALL else 0
        while True:
            leased = self._consumer.lease(whole)
            if leased is not None:
                return leased, scored
            more = self._scoring.score_some()
            if not more:
                return self._consumer.lease(spec), scored
            scored += more
