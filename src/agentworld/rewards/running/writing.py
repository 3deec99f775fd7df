"""What evaluations leave in the pool: what was said and, after that, rewards and labels; one thread writes for all."""

from __future__ import annotations

import functools
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from agentworld.errors import AgentWorldError, NotFoundError, PoolError
from agentworld.pool.protocol import Pool
from agentworld.records import BatchTrajectory, Evaluation, Feedback, Reward
from agentworld.rewards.checked import reward_records
from agentworld.rewards.protocol import FAILED_LABEL, Evaluator, RolloutGroup, Subject
from agentworld.rewards.running.cache import Outcome, evaluations_of
from agentworld.rewards.running.report import Counting, Ending

MOST = 500  # records in one call
TRIES = 6
FIRST_PAUSE = 0.25

T = TypeVar("T")


class Said(NamedTuple):
    """One evaluation that has ended, and who waits for its being durable."""

    evaluator: Evaluator
    subject: Subject
    outcome: Outcome
    durable: Callable[[], None]


class Writing:
    """The thread that writes. Evaluations come first, so that what was paid for is known, whatever comes between.

    `failed` is the error that ended it, as where the pool cannot be written. In a dry run it counts alone.
    """

    def __init__(self, pool: Pool, fingerprints: dict[str, bytes], counting: Counting, *, dry_run: bool) -> None:
        self.failed: AgentWorldError | None = None
        self._pool = pool
        self._fingerprints = fingerprints
        self._counting = counting
        self._dry_run = dry_run
        self._queue: queue.SimpleQueue[Said | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._progress = threading.Condition()
        self._put = self._done = 0
        self._thread = threading.Thread(target=self._run, name="evaluations-writing", daemon=True)
        self._thread.start()

    def put(self, said: Said) -> None:
        """Have it written; from any thread."""
        with self._progress:
            self._put += 1
            self._queue.put(said)

    def settle(self) -> None:
        """Wait until what was put so far is durable, or the writing has ended."""
        with self._progress:
            wanted = self._put
            self._progress.wait_for(lambda: self._done >= wanted or self.failed is not None)

    def close(self) -> None:
        """Write what was put, and end."""
        self._closing.set()
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        open_ = True
        while open_:
            batch: list[Said] = []
            first = self._queue.get()
            open_ = first is not None
            if first is not None:
                batch.append(first)
            while open_ and len(batch) < MOST:
                try:
                    more = self._queue.get_nowait()
                except queue.Empty:
                    break
                open_ = more is not None
                if more is not None:
                    batch.append(more)
            if not batch or self.failed is not None:
                continue
            try:
                self._write(batch)
            except AgentWorldError as error:
                self.failed = error
            except Exception as error:
                self.failed = AgentWorldError(f"evaluations cannot be written: {type(error).__name__}: {error}")
            with self._progress:
                self._done += len(batch)
                self._progress.notify_all()

    def _write(self, batch: Sequence[Said]) -> None:
        lasting = [] if self._dry_run else list(batch)
        written = list(batch)
        try:
            self._write_together(lasting)
        except AgentWorldError as error:
            if _is_of_pool(error):
                raise
            # One of them cannot be taken, which the others have nothing to do with.
            written = [kept for each in lasting if (kept := self._write_alone(each)) is not None]
        for each in written:
            self._count(each)
        for each in batch:
            each.durable()

    def _write_together(self, batch: Sequence[Said]) -> None:
        evaluations = [record for each in batch if not each.outcome.stands for record in self._records(each)]
        for part in _parts(evaluations):
            self._again(functools.partial(self._pool.put_evaluations, part))
        signals = [signal for each in batch for signal in signals_of(each)]
        for some in _parts(signals):
            self._again(functools.partial(self._pool.add_signals, some))

    def _write_alone(self, said: Said) -> Said | None:
        """What was written: a failure where the pool does not take it, None where the subject was deleted meanwhile."""
        try:
            self._write_together([said])
        except NotFoundError:
            return None
        except AgentWorldError as error:
            if _is_of_pool(error):
                raise
            reason = f"the pool does not take what {said.evaluator.name} said: {error.one_line()}"
            refused = said._replace(outcome=Outcome(None, reason, said.outcome.content, said.outcome.attempts or 1))
            self._again(lambda: self._pool.put_evaluations(self._records(refused)))
            return refused
        return said

    def _records(self, said: Said) -> list[Evaluation]:
        return evaluations_of(said.evaluator, self._fingerprints[said.evaluator.name], said.subject, said.outcome)

    def _again(self, write: Callable[[], object]) -> None:
        """Write, and try again for a while where the pool cannot be written now."""
        for attempt in range(TRIES):
            try:
                write()
                return
            except AgentWorldError as error:
                if not _may_pass(error) or attempt == TRIES - 1 or self._closing.wait(FIRST_PAUSE * 2**attempt):
                    raise

    def _count(self, said: Said) -> None:
        outcome = said.outcome
        ending: Ending = "evaluated"
        if outcome.due:
            ending = "due"
        elif outcome.verdicts is None:
            ending = "failed" if outcome.attempts else "skipped"
        elif outcome.cached:
            ending = "cached"
        seconds = 0.0 if ending == "skipped" else outcome.seconds
        self._counting.count(said.evaluator, ending, outcome.verdicts, seconds, outcome.error)


def _may_pass(error: AgentWorldError) -> bool:
    """Whether the pool, or the server before it, cannot be written now, and perhaps soon."""
    return isinstance(error, PoolError) or error.status in (502, 503, 504)


def _is_of_pool(error: AgentWorldError) -> bool:
    """Whether it is no fault of what was to be written: a pool or server that is not there, a key that does not do."""
    return _may_pass(error) or error.status in (401, 403)


def signals_of(said: Said) -> list[Reward | Feedback]:
    """The rewards, and the label of each trajectory that the evaluator failed on or no longer fails on."""
    verdicts = said.outcome.verdicts
    rewards = reward_records(said.evaluator, said.subject, verdicts) if verdicts is not None else []
    runs = said.subject.members if isinstance(said.subject, RolloutGroup) else (said.subject,)
    return [*rewards, *(label for run in runs for label in _labels(said.evaluator.name, run, verdicts is None))]


def _labels(evaluator: str, run: BatchTrajectory, failed: bool) -> Iterator[Feedback]:
    name = FAILED_LABEL + evaluator
    if (run.trajectory.labels.get(name) == "failed") != failed:
        target = run.trajectory.trajectory_id
        value = "failed" if failed else None
        yield Feedback(kind="label", trajectory_id=target, name=name, value=value, source=evaluator)


def _parts(records: Sequence[T]) -> Iterator[list[T]]:
    for start in range(0, len(records), MOST):
        yield list(records[start : start + MOST])
