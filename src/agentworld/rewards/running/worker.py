"""Evaluators over a pool: what is stored first, then what events tell, resumable at any point.

Where a run is, is saved once the results before that are durable. What is evaluated again after a kill is found in the
pool by its content, so nothing that was paid for is paid for again, but for what was at work.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator

from agentworld.errors import AgentWorldError, ConfigError, NotFoundError
from agentworld.pool.protocol import Pool
from agentworld.rewards.judges.asking import JudgeKind
from agentworld.rewards.protocol import Evaluator, Subject
from agentworld.rewards.running.admission import Admission
from agentworld.rewards.running.cache import Outcome
from agentworld.rewards.running.following import Bookmark, Place, follower_name
from agentworld.rewards.running.jobs import Job
from agentworld.rewards.running.lanes import Lane
from agentworld.rewards.running.plan import Plan
from agentworld.rewards.running.positions import Positions, Ticket
from agentworld.rewards.running.report import Counting, RunReport
from agentworld.rewards.running.settings import RunSettings
from agentworld.rewards.running.sources import Key, Sources, Wanted
from agentworld.rewards.running.subjects import Subjects
from agentworld.rewards.running.writing import Said, Writing

SAVE_SECONDS = 1.0
STOP_SECONDS = 5.0  # for what is in flight when a run is stopped
LOOK_SECONDS = 0.05
Progress = Callable[[str, int, int | None], None]


def run_rewards(
    pool: Pool,
    plan: Plan,
    settings: RunSettings,
    *,
    progress: Progress = lambda stage, done, total: None,
    say: Callable[[str], None] = lambda line: None,
    stop: threading.Event | None = None,
) -> RunReport:
    """Judge all that matches and is not judged yet; with `follow`, go on until `stop` is set.

    `say` gets a line for people where an evaluator rests or judges again. ConflictError where another process goes on
    under the same name; PoolError where the pool cannot be read or written for a while.
    """
    _check_channel(plan, settings)
    return _Worker(pool, plan, settings, progress, say, stop or threading.Event()).run()


def _check_channel(plan: Plan, settings: RunSettings) -> None:
    """ConfigError where a judge is to judge its own judgements, which has no end."""
    for each in plan.evaluators:
        if isinstance(each, JudgeKind) and each.gateway and each.channel == settings.channel:
            raise ConfigError(
                f"{each.name} would judge channel {each.channel!r}, where its own judgements are",
                path="channel",
                hint="Name another channel, or give the judge one of its own with `channel`",
            )


class _Worker:
    def __init__(
        self,
        pool: Pool,
        plan: Plan,
        settings: RunSettings,
        progress: Progress,
        say: Callable[[str], None],
        stop: threading.Event,
    ) -> None:
        self._plan = plan
        self._settings = settings
        self._progress = progress
        self._stop = stop
        self._subjects = Subjects(pool, settings)
        self._admission = Admission(pool, plan)
        self._counting = Counting([each.name for each in plan.evaluators])
        saves = not settings.dry_run and settings.again != "failed"
        self._bookmark = Bookmark(pool, follower_name(plan, settings), saves=saves)
        self._place = self._bookmark.load()
        self._positions = Positions(self._place)
        self._sources = Sources(pool, plan, self._subjects, self._positions, stop)
        self._looked = 0.0
        self._begun = {"trajectory": 0, "group": 0}
        self._most = max(32, settings.concurrency * 4)
        self._room = threading.Semaphore(self._most)
        self._lock = threading.Lock()
        self._active: dict[Key, list[Ticket]] = {}
        since = 0.0
        if settings.again == "all":
            since = math.inf if settings.dry_run else self._place.since
        self._writing = Writing(pool, plan.fingerprints, self._counting, dry_run=settings.dry_run)
        self._lanes = {
            each.name: Lane(pool, each, plan.fingerprints[each.name], settings, say, since, self._writing.settle)
            for each in plan.evaluators
        }

    def run(self) -> RunReport:
        """The whole run."""
        try:
            for wanted in self._wanted():
                self._begin(wanted)
                if self._stop.is_set() or self._left() == 0:
                    break
            self._finish()
            self._again_after_rests()
            self._finish()
            whole = self._settings.again == "all" and not self._stop.is_set() and self._left() != 0
            self._save(Place() if whole else self._positions.settled)
        finally:
            for lane in self._lanes.values():
                lane.close()
            self._writing.close()
        return RunReport(
            evaluators=self._counting.tallies(),
            trajectories=self._begun["trajectory"],
            groups=self._begun["group"],
            resting=self._resting(),
        )

    # --- what is to be judged ---------------------------------------------------------------------------------
    def _wanted(self) -> Iterator[Wanted]:
        if self._settings.again == "failed":
            yield from self._sources.failed(lambda attempts: True)
            return
        yield from self._sources.stored(self._place, self._left)
        yield from self._sources.told(self._settings.follow, self._bookmark.check, self._idle)

    def _idle(self) -> Iterator[Wanted]:
        """Nothing more is told: what was skipped while an evaluator rested that judges again."""
        self._look_after()
        for name, lane in self._lanes.items():
            if lane.recovered:
                lane.recovered = False
                yield from self._skipped(name)

    def _again_after_rests(self) -> None:
        """At the end of a run over what is stored, those that were skipped are tried once more."""
        if self._settings.follow or self._settings.dry_run or self._stop.is_set():
            return
        for name in [name for name, tally in self._counting.tallies().items() if tally.skipped]:
            self._lanes[name].rest.wake()
            for wanted in self._skipped(name):
                self._begin(wanted)

    def _skipped(self, name: str) -> list[Wanted]:
        wanted = self._sources.failed(lambda attempts: attempts == 0, name)
        self._counting.recover(name, len(wanted))
        return wanted

    def _left(self) -> int | None:
        """How many more subjects may be begun; None: any number."""
        limit = self._settings.limit
        return None if limit is None else max(0, limit - sum(self._begun.values()))

    # --- judging ----------------------------------------------------------------------------------------------
    def _begin(self, wanted: Wanted) -> None:
        """Have one subject judged, once there is room for it; while it is judged already, once more after that."""
        while not self._room.acquire(timeout=LOOK_SECONDS):
            self._look_after()
            if self._stop.is_set():
                return
        ticket = self._positions.passed(wanted.place)
        with self._lock:
            if wanted.key in self._active:
                self._active[wanted.key].append(ticket)
                self._room.release()
                return
            self._active[wanted.key] = []
        self._begun[wanted.key[0]] += self._start(wanted.key, ticket)
        self._progress("evaluating", sum(self._begun.values()), self._settings.limit)
        self._look_after()

    def _start(self, key: Key, ticket: Ticket) -> bool:
        """Have its evaluators begin; False where it is not there, or is not one of those that match."""
        try:
            subject = self._subjects.run(key[1]) if key[0] == "trajectory" else self._subjects.group(key[1])
        except NotFoundError:
            subject = None  # It was deleted meanwhile.
        parts = _Parts(lambda: self._over(key, ticket))

        def ended(evaluator: Evaluator, judged: Subject, outcome: Outcome | None) -> None:
            if outcome is None:
                parts.end()
            else:
                self._writing.put(Said(evaluator, judged, outcome, parts.end))

        if subject is not None:
            job = Job(self._plan, self._lanes, subject, ended, self._admission.of(subject))
            parts.more(job.size)
            job.begin()
        parts.end()
        return subject is not None

    def _over(self, key: Key, ticket: Ticket) -> None:
        """A subject is judged and that is durable; from any thread."""
        ticket.end()
        with self._lock:
            waiting = self._active.pop(key)
            if waiting:
                self._active[key] = []
        if not waiting:
            self._room.release()
            return
        for each in waiting[1:]:
            each.end()
        try:
            self._start(key, waiting[0])
        except AgentWorldError as error:
            self._writing.failed = error

    def _finish(self) -> None:
        """Wait until everything that was begun is durable; where the run is stopped, for a few seconds only."""
        stopped: float | None = None
        taken = 0
        while taken < self._most:
            if self._room.acquire(timeout=LOOK_SECONDS):
                taken += 1
                continue
            self._look_after()
            if self._stop.is_set():
                stopped = stopped or time.monotonic()
                if time.monotonic() - stopped > STOP_SECONDS:
                    break
        if taken:
            self._room.release(taken)

    # --- looking after it -------------------------------------------------------------------------------------
    def _look_after(self) -> None:
        """Once in a while: evaluations that do not end, and where the run is. The error that ended the writing."""
        if self._writing.failed is not None:
            raise self._writing.failed
        now = time.monotonic()
        if now - self._looked < SAVE_SECONDS:
            return
        self._looked = now
        for lane in self._lanes.values():
            lane.watch()
        self._save(self._positions.settled)

    def _save(self, place: Place) -> None:
        self._bookmark.save(place, self._counting.tallies(), self._resting())

    def _resting(self) -> dict[str, str]:
        return {name: lane.rest.error or "" for name, lane in self._lanes.items() if lane.rest.resting}


class _Parts:
    """Calls `over` once all parts have ended; there is one at first."""

    def __init__(self, over: Callable[[], None]) -> None:
        self._over = over
        self._left = 1
        self._lock = threading.Lock()

    def more(self, count: int) -> None:
        """So many more."""
        with self._lock:
            self._left += count

    def end(self) -> None:
        """One has ended."""
        with self._lock:
            self._left -= 1
            last = self._left == 0
        if last:
            self._over()
