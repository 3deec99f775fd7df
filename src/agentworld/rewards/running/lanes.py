"""One evaluator at work: several at once, known results first, tries again, rests, and an end in every case."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from agentworld.pool.protocol import Pool
from agentworld.records import digest
from agentworld.rewards.checked import checked
from agentworld.rewards.protocol import EvaluationError, Evaluator, Subject, Verdict
from agentworld.rewards.running.cache import Outcome, Target, content_of, target_of, verdicts_of
from agentworld.rewards.running.resting import Rest
from agentworld.rewards.running.settings import RunSettings

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
COSTLY = 0.02  # seconds of an evaluation that is rather waited for than lost
RECENT = 256  # verdicts that may not be in the pool yet, by content


class Asked:
    """One subject that a lane was given. Its end is told once, whoever comes to it first.

    `echo`: it is asked for on behalf of its group, and is judged by itself too. `digests`: of its steps, as far as they
    are known, by trajectory id; those that ask about the same steps share them.
    """

    def __init__(
        self, subject: Subject, done: Callable[[Outcome], None], digests: dict[str, list[bytes]], *, echo: bool = False
    ) -> None:
        self.subject = subject
        self.digests = digests
        self.echo = echo
        # Until it is read; what cannot be read at all keeps this one.
        self.content = digest(b"unread", target_of(subject)[1].encode("utf-8", "surrogatepass"))
        self._done = done
        self._lock = threading.Lock()
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether its end was told."""
        with self._lock:
            return self._ended

    def end(self, outcome: Outcome) -> bool:
        """Tell the outcome; False where one was told before."""
        with self._lock:
            if self._ended:
                return False
            self._ended = True
        self._done(outcome)
        return True


class Lane:
    """An evaluator's threads. A slow or failing one holds up nobody but itself.

    `say`: called with a line for people when it begins to rest, and when it judges again. `known_since`: results that
    are older do not count as known. `settle`: waits until what was told is durable. A thread calls it after each
    evaluation that was costly, so that of these no more than `concurrency` are lost with the process.
    """

    def __init__(
        self,
        pool: Pool,
        evaluator: Evaluator,
        fingerprint: bytes,
        settings: RunSettings,
        say: Callable[[str], None],
        known_since: float,
        settle: Callable[[], None],
    ) -> None:
        self.evaluator = evaluator
        self.rest = Rest(settings)
        self.recovered = False
        self._pool = pool
        self._fingerprint = fingerprint
        self._settings = settings
        self._say = say
        self._since = known_since
        self._settle = settle
        self._most = int(getattr(evaluator, "batch", 1)) if hasattr(evaluator, "evaluate_many") else 1
        self._queue: queue.SimpleQueue[Asked | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._same: dict[bytes, list[Asked]] = {}
        self._recent: OrderedDict[bytes, _Recent] = OrderedDict()
        self._running: dict[int, tuple[float, list[Asked]]] = {}
        self._ending = threading.Event()
        for _ in range(settings.concurrency):
            self._start()

    def put(self, asked: Asked) -> None:
        """Have it judged; its end is told from one of the threads."""
        self._queue.put(asked)

    def close(self) -> None:
        """Begin nothing more. Threads that are within an evaluation are left to themselves."""
        self._ending.set()
        for _ in range(self._settings.concurrency):
            self._queue.put(None)

    def watch(self) -> None:
        """Fail what has run for too long, and put another thread in the place of the one that it holds.

        What counts is the evaluation: not what was read before it, nor, once its end was told, until it is durable.
        """
        now = time.monotonic()
        with self._lock:
            late = {
                key: each
                for key, each in self._running.items()
                if now - each[0] > self._settings.most_seconds and not all(asked.ended for asked in each[1])
            }
            for key in late:
                del self._running[key]
        for began, batch in late.values():
            self._start()
            reason = (
                f"{self.evaluator.name}: it did not end within {self._settings.most_seconds:g} s and was left behind"
            )
            for asked in batch:
                if not asked.ended:
                    self._fail(asked, reason, 1, now - began)

    def _start(self) -> None:
        # A daemon, so that an evaluation without an end cannot keep the process.
        threading.Thread(target=self._work, name=f"evaluator-{self.evaluator.name}", daemon=True).start()

    def _work(self) -> None:
        own = threading.get_ident()
        while not self._ending.is_set():
            first = self._queue.get()
            if first is None:
                return
            batch = [first]
            while len(batch) < self._most:
                try:
                    more = self._queue.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    self._queue.put(None)
                    break
                batch.append(more)
            with self._lock:
                self._running[own] = (math.inf, batch)  # Nothing is evaluated yet.
            try:
                self._judge(batch)
            except Exception as error:
                # The pool, or a record that cannot be read: an end for these, and the thread goes on.
                for asked in batch:
                    self._fail(asked, f"{self.evaluator.name}: {type(error).__name__}: {error}", 0, 0.0)
            with self._lock:
                if self._running.pop(own, None) is None:
                    return  # `watch` has put another thread in its place

    def _judge(self, batch: Sequence[Asked]) -> None:
        due = [asked for asked in batch if not self._is_settled(asked)]
        if not due:
            return
        if self._settings.dry_run:
            for asked in due:
                self._tell(asked, Outcome(None, None, asked.content, due=True))
            return
        if not self.rest.admits():
            for asked in due:
                reason = (
                    f"{self.evaluator.name} rests after many failures and was not asked; the latest: {self.rest.error}"
                )
                self._tell(asked, Outcome(None, reason, asked.content, attempts=0))
            return
        began = time.monotonic()
        with self._lock:
            self._running[threading.get_ident()] = (began, due)
        found = self._many(due) if len(due) > 1 else None
        for place, asked in enumerate(due):
            said = found[place] if found is not None else None
            self._one(asked, said, (time.monotonic() - began) / len(due) if said is not None else 0.0)
        if time.monotonic() - began >= COSTLY:
            self._settle()

    def _is_settled(self, asked: Asked) -> bool:
        """Whether its verdicts are known, or come from another subject of the same content that is being judged."""
        asked.content = content_of(self.evaluator, asked.subject, asked.digests)
        known = self._pool.known_evaluations(self._fingerprint, [asked.content]).get(asked.content)
        if known is not None and known.at >= self._since:
            verdicts = verdicts_of(self.evaluator, asked.subject, known)
            if verdicts is not None:
                stands = (known.target, known.target_id) == target_of(asked.subject)
                with self._lock:
                    echoed = self._was_echoed(asked)
                asked.end(Outcome(verdicts, None, asked.content, cached=True, stands=stands, echoed=echoed))
                return True
        if asked.echo and (failure := self._failure(asked)) is not None:
            asked.end(failure)
            return True
        with self._lock:
            recent = self._recent.get(asked.content)
            if recent is None and asked.content in self._same:
                self._same[asked.content].append(asked)
                return True
            if recent is None:
                self._same[asked.content] = []
                return False
            echoed = self._was_echoed(asked)
        moved = _moved(self.evaluator, recent.target_id, asked.subject, recent.verdicts)
        asked.end(Outcome(moved, None, asked.content, cached=True, echoed=echoed))
        return True

    def _was_echoed(self, asked: Asked) -> bool:
        """Whether this subject's group had it judged a moment ago, before its own turn came; told once."""
        recent = self._recent.get(asked.content)
        if recent is None or asked.echo or not recent.echo or recent.target_id != target_of(asked.subject)[1]:
            return False
        self._recent[asked.content] = recent._replace(echo=False)
        return True

    def _failure(self, asked: Asked) -> Outcome | None:
        """Its failure that is on record already, so that its group need not have it tried again."""
        if self._settings.again == "failed":
            return None
        target, target_id = target_of(asked.subject)
        page = self._pool.list_evaluations(
            evaluator=self.evaluator.name, target=target, target_id=target_id, state="failed", limit=1
        )
        for one in page.items:
            same = (one.fingerprint, one.content) == (self._fingerprint, asked.content)
            if same and one.attempts and one.at >= self._since:
                return Outcome(None, one.error, asked.content, one.attempts, cached=True, stands=True)
        return None

    def _many(self, due: Sequence[Asked]) -> list[Any] | None:
        """The verdicts of one call for all of them; None where that fails, and each is asked for by itself."""
        try:
            said = self.evaluator.evaluate_many([each.subject for each in due])  # type: ignore[attr-defined]  # Looked for.
        except BaseException:
            # Whatever it is, it is told again by the one that has it.
            return None
        return list(said) if len(said) == len(due) else None

    def _one(self, asked: Asked, said: Any, seconds: float) -> None:
        began = time.monotonic()
        evaluator: Evaluator = self.evaluator if said is None else _Answered(self.evaluator, said)
        for attempt in range(1, self._settings.retries + 2):
            try:
                verdicts = checked(evaluator, asked.subject)
            except EvaluationError as error:
                if error.transient and attempt <= self._settings.retries:
                    if self._ending.wait(min(FIRST_PAUSE * 2 ** (attempt - 1), LONGEST_PAUSE)):
                        return
                    continue
                self._fail(asked, error.one_line(), attempt, seconds + time.monotonic() - began)
                return
            except BaseException as error:
                # Such as a cancelled task of asyncio: this thread is the evaluator's, and has nothing else to end for.
                reason = f"{self.evaluator.name} raised {type(error).__name__}"
                self._fail(asked, reason, attempt, seconds + time.monotonic() - began)
                return
            if self.rest.succeeded():
                self.recovered = True
                self._say(f"{self.evaluator.name} judges again")
            self._tell(asked, Outcome(verdicts, None, asked.content, attempt, seconds + time.monotonic() - began))
            return

    def _fail(self, asked: Asked, error: str, attempts: int, seconds: float) -> None:
        if attempts and self.rest.failed(error):
            self._say(f"{self.evaluator.name} rests after {self._settings.pause_after} failures in a row: {error}")
        self._tell(asked, Outcome(None, error, asked.content, attempts, seconds))

    def _tell(self, asked: Asked, outcome: Outcome) -> None:
        target = target_of(asked.subject)
        with self._lock:
            same = self._same.pop(asked.content, [])
            if outcome.verdicts is not None:
                own_comes = asked.echo and not any(_is_own(each, target) for each in same)
                self._recent[asked.content] = _Recent(target[1], outcome.verdicts, own_comes)
                if len(self._recent) > RECENT:
                    self._recent.popitem(last=False)
        asked.end(outcome)
        for each in same:
            echoed = asked.echo and _is_own(each, target)
            if outcome.verdicts is None:
                # A group's question about a member that has just failed is no failure of its own.
                told = each.echo and target_of(each.subject) == target
                attempts = min(outcome.attempts, 1)
                each.end(outcome._replace(seconds=0.0, attempts=attempts, cached=told, echoed=echoed))
            else:
                verdicts = _moved(self.evaluator, target[1], each.subject, outcome.verdicts)
                each.end(Outcome(verdicts, None, each.content, cached=True, echoed=echoed))


class _Recent(NamedTuple):
    """Verdicts, of which subject, and whether its group had them given while its own turn is still to come."""

    target_id: str
    verdicts: dict[str, Verdict]
    echo: bool


class _Answered:
    """An evaluator whose answer for one subject is there already, for `checked`."""

    def __init__(self, evaluator: Evaluator, said: Any) -> None:
        self.name, self.version, self.scope = evaluator.name, evaluator.version, evaluator.scope
        self.gives, self.needs, self.configuration = evaluator.gives, evaluator.needs, evaluator.configuration
        self._said = said

    def evaluate(self, subject: Any) -> Any:
        """The answer."""
        return self._said


def _is_own(asked: Asked, target: tuple[Target, str]) -> bool:
    """Whether a subject is asked about for itself, and is this one."""
    return not asked.echo and target_of(asked.subject) == target


def _moved(evaluator: Evaluator, judged: str, same: Subject, verdicts: dict[str, Verdict]) -> dict[str, Verdict]:
    """The verdicts under the id of the subject with the same content; those of groups and steps are by id already."""
    if evaluator.scope != "trajectory":
        return verdicts
    return {target_of(same)[1]: verdicts[judged]}
