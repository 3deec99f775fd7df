"""Files into a pool: runs are read as a stream and stored in portions, each trajectory whole or not at all.

The same run read again is known by its digest, and an earlier part of a run that is there by what it holds. A run that
has grown or changed since is stored beside the one that is there, as `ID.2`, `ID.3` and so on, and the older ones of
its channel are excluded by a manual decision.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from agentworld.errors import InvalidRequestError
from agentworld.ingest.collecting import seldom_collecting
from agentworld.ingest.examining import examine, name_of
from agentworld.ingest.files import StreamEntry
from agentworld.ingest.finding import check_paths, entries, files
from agentworld.ingest.format import Format
from agentworld.ingest.formats import get_format
from agentworld.ingest.former import FormerImports
from agentworld.ingest.growth import is_other_part, relation
from agentworld.ingest.limits import USUAL, Limits
from agentworld.ingest.occurrences import Occurrences
from agentworld.ingest.reading import Read, read_entries
from agentworld.ingest.report import ImportReport
from agentworld.ingest.run import Note
from agentworld.ingest.thinking import split_thinking
from agentworld.ingest.versions import exclude_older, is_same, take_back, there, version, versions
from agentworld.ingest.wholes import (
    EMPTY,
    PARENT,
    PRIMARY,
    Placing,
    former_names,
    is_empty,
    is_session,
    make_whole,
    renamed,
)
from agentworld.pool.keeping.records import Progress, no_progress
from agentworld.pool.protocol import Pool
from agentworld.records import AddedTrajectory, Trajectory, WholeTrajectory

if TYPE_CHECKING:
    from agentworld.ingest.deriving import Deriver

# What waits is stored once it has so much: several transactions of the pool, which take one while the next is made.
_STEPS, _TRAJECTORIES, _BYTES = 1024, 256, 16 * 1024 * 1024
_VERSIONS = 10_000


class _Waiting(NamedTuple):
    """What is to be stored; `first`: the id of the first of the runs that are equal to it, where that is another;
    `former`: ids that earlier versions gave to it.
    """

    format: str
    file: str
    whole: WholeTrajectory
    first: str | None
    former: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.whole.new.trajectory_id or ""


class Importer:
    """One import. `pool` None: everything is read and counted, and nothing is stored. `placing`: channel, group and so
    on of what is stored. `limit`: of runs. `deriver` gives ids to steps that have only text. `keep_thinking`: what
    replies of plain chat think between tags stays in their texts. `progress`: in bytes.
    """

    def __init__(
        self,
        pool: Pool | None,
        format: str = "auto",
        *,
        placing: Placing | None = None,
        limits: Limits = USUAL,
        limit: int | None = None,
        deriver: Deriver | None = None,
        keep_thinking: bool = False,
        progress: Progress = no_progress,
    ) -> None:
        if format != "auto":
            get_format(format)
        self.report = ImportReport(dry_run=pool is None)
        self._pool, self._format, self._limits, self._limit = pool, format, limits, limit
        self._placing = placing or Placing()
        self._deriver = deriver
        self._keep_thinking = keep_thinking
        self._progress = progress
        self._waiting: list[_Waiting] = []
        self._waiting_steps = self._waiting_bytes = 0
        self._numbers: dict[str, int] = {}  # of the runs of each file of a bundle, from 0
        self._named: set[tuple[str, ...]] = set()
        self._occurrences = Occurrences()
        self._split_in: str | None = None  # the file of which it was said last
        self._former = None if pool is None else FormerImports(pool)
        self._outgrown: dict[str, tuple[str, ...]] = {}  # of runs that wait, what they take the place of
        self._deleted: set[str] = set()  # runs without a name that were deleted on request

    def run(self, paths: Iterable[Path]) -> ImportReport:
        """Import what is at the paths; NotFoundError where one is not there, before anything is read."""
        paths = list(paths)
        check_paths(paths)
        began = time.monotonic()
        self._total = sum(file.size for file in files(paths, lambda note: None, self._limits))
        self._before = 0
        self._current: StreamEntry | None = None
        reads = read_entries(self._format, self._followed(paths), self.report.take, self._seen)
        with seldom_collecting():
            for read in islice(reads, self._limit):
                self._take(read)
                self._show()
            self._store()
        self._show(ended=True)
        self.report.bytes_read = self._total
        self.report.seconds = time.monotonic() - began
        return self.report

    def _followed(self, paths: list[Path]) -> Iterator[StreamEntry]:
        """The entries, with an eye on how far the files on disk have been read."""
        for entry in entries(paths, self.report.take, self._limits):
            if self._current is not None and self._current is not entry.disk:
                self._before += self._current.size
            self._current = entry.disk
            yield entry

    def _seen(self, entry: StreamEntry, format: Format | None) -> None:
        if format is None:
            self.report.unknown_files += 1
        else:
            self.report.of(format.name).files += 1

    def _show(self, *, ended: bool = False) -> None:
        position = getattr(self._current, "position", 0)
        self._progress("bytes read", self._total if ended else min(self._total, self._before + position), self._total)

    def _take(self, read: Read) -> None:
        run, format = read.run, read.format.name
        file = run.file or (read.bundle[0].name if read.bundle else "")
        if read.number == 0:
            self._numbers.clear()
            self._occurrences.start()
        number = self._numbers[file] = self._numbers.get(file, -1) + 1
        name = run.native_id or f"run {number}"

        def say(place: str, why: str, lost: bool) -> None:
            self.report.take(Note(file=file, place=f"{name}: {place}", why=why, lost=lost))

        counts = self.report.of(format)
        counts.runs += 1
        if is_empty(run):
            counts.empty += 1
            say("$", EMPTY, False)
            return
        try:
            facts = examine(run)
            is_named = run.native_id is not None or is_session(run)
            occurrence = 1 if is_named else self._occurrence(file, facts.digest)
            if not self._keep_thinking and getattr(read.format, "plain_chat", False) and split_thinking(run):
                self._tell_split(file)
            former = former_names(format, run, facts, self._placing)
            whole = make_whole(format, file, number, run, facts, self._placing, say, occurrence)
        except (TypeError, ValueError, AttributeError, LookupError, RecursionError) as error:
            # A format put something into a run that records do not take.
            counts.refused += 1
            say("$", f"it cannot be stored: {type(error).__name__}: {error}", True)
            return
        counts.steps += facts.steps
        counts.messages += facts.messages
        counts.tool_calls += facts.tool_calls
        counts.tool_results += facts.tool_results
        counts.rewards += len(run.rewards)
        counts.labels += len(run.feedback)
        self._tell_rewards(file, name, whole)
        if self._deriver is not None:
            for step in whole.steps:
                if why := self._deriver.derive(step):
                    say(f"step {step.step_id}", f"it gets no ids: {why}", False)
                elif step.token_source == "derived":
                    counts.derived += 1
        if self._pool is None:
            return
        try:
            for data, media_type in run.media.values():
                self._pool.put_media(data, media_type)
        except InvalidRequestError as error:
            counts.refused += 1
            say("$", f"its media cannot be stored: {error.one_line()}", True)
            return
        first = None if occurrence == 1 else name_of(format, None, facts.digest, 1, whole.new.user)
        self._waiting.append(_Waiting(format, file, whole, first, former))
        self._waiting_steps += len(whole.steps)
        self._waiting_bytes += facts.size
        if self._waiting_steps >= _STEPS or len(self._waiting) >= _TRAJECTORIES or self._waiting_bytes >= _BYTES:
            self._store()

    def _occurrence(self, file: str, digest: str) -> int:
        was_full = self._occurrences.full
        number = self._occurrences.count(digest, file)
        if self._occurrences.full and not was_full:
            why = "too many runs without a name for all to be told apart: of the others, equal ones are stored once"
            self.report.take(Note(file=file, place="$", why=why, hint="Split the file", lost=False))
        return number

    def _tell_split(self, file: str) -> None:
        if file != self._split_in:
            self._split_in = file
            why = "what replies think between <think> and </think> becomes their reasoning"
            hint = "--keep-thinking leaves it where it is"
            self.report.take(Note(file=file, place="$", why=why, hint=hint, lost=False))

    def _tell_rewards(self, file: str, name: str, whole: WholeTrajectory) -> None:
        """Say once for each set of names that no reward became the primary one."""
        names = sorted({reward.name for reward in whole.rewards if reward.step_id is None})
        if names and PRIMARY not in names and (key := tuple(names)) not in self._named and len(self._named) < 100:
            self._named.add(key)
            why = f"none of the rewards {', '.join(names)} is the primary one"
            hint = "Choose it with --reward-name"
            self.report.take(Note(file=file, place=name, why=why, hint=hint, lost=False))

    def _store(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._waiting_steps = self._waiting_bytes = 0
        if self._pool is None:
            return
        self._add([one for one in waiting if one.first is None])
        repeated = [one for one in waiting if one.first is not None]
        # Where the first of equal runs was deleted on request, no further one comes in its place.
        barred = [one for one in repeated if one.first in self._deleted]
        if barred:
            present = there(self._pool, [one.name for one in barred])
            for one in barred:
                if one.name not in present:
                    self._settle(one, AddedTrajectory(trajectory_id=one.name, outcome="deleted"))
            repeated = [one for one in repeated if one.first not in self._deleted or one.name in present]
        self._add(repeated)

    def _add(self, waiting: list[_Waiting]) -> None:
        if not waiting:
            return
        assert self._pool is not None
        waiting = [one for one in waiting if not self._is_within(one) and not self._is_former(one)]
        outcomes = self._pool.add_whole([one.whole for one in waiting])
        known: list[tuple[_Waiting, str]] = []
        for one, outcome in zip(waiting, outcomes, strict=True):
            settled = self._settle(one, outcome)
            if settled.outcome == "known":
                known.append((one, settled.trajectory_id))
        present = there(self._pool, [name for _, name in known])
        for one, name in known:
            if (found := present.get(name)) is not None:
                self._tell_known(one, found)

    def _is_within(self, one: _Waiting) -> bool:
        """Whether it is a sub-agent, and all of it is in the run of who began it, which was imported with it before."""
        parent = one.whole.new.metadata.get(PARENT)
        if parent is None:
            return False
        assert self._pool is not None
        if there(self._pool, [one.name]):
            return False  # It is there by itself too.
        for found in reversed(versions(self._pool, parent)):
            if relation(self._pool, one.whole, found) == "earlier":
                self.report.of(one.format).known += 1
                why = f"it is in {found.trajectory_id}, the run of who began it, which is there: nothing is stored"
                self._note(one, why, lost=False)
                return True
        return False

    def _is_former(self, one: _Waiting) -> bool:
        """Whether an earlier version imported all of it under another id; what it imported of it is kept in mind."""
        assert self._pool is not None
        assert self._former is not None
        if not one.former or there(self._pool, [one.name]):
            return False
        former = self._former.find(one.whole, one.former)
        if former.outgrown:
            self._outgrown[one.name] = former.outgrown
        if former.outcome is None:
            return False
        self._settle(one, AddedTrajectory(trajectory_id=former.name, outcome=former.outcome))
        if former.outcome == "known":
            self._note(one, f"it is {former.name}, which is there: nothing is stored", lost=False)
        return True

    def _tell_known(self, one: _Waiting, found: Trajectory) -> None:
        if found.channel != one.whole.new.channel:
            why = f"it is there already, in the channel {found.channel}, and stays there"
            self._note(one, why, lost=False)
        self._take_back(one, found)

    def _take_back(self, one: _Waiting, found: Trajectory) -> None:
        if self._pool is not None and take_back(self._pool, found):
            why = f"{found.trajectory_id} is no longer excluded: what had taken its place was deleted"
            self._note(one, why, lost=False)

    def _settle(self, one: _Waiting, outcome: AddedTrajectory) -> AddedTrajectory:
        counts = self.report.of(one.format)
        if outcome.outcome == "differs":
            outcome, replaced = self._add_version(one)
            if outcome.outcome == "added" and replaced:
                counts.replaced += 1
            elif outcome.outcome == "added":
                counts.added += 1
        elif outcome.outcome == "added":
            outgrown = self._outgrown.pop(one.name, ())
            if self._pool is not None and outgrown:
                exclude_older(self._pool, outgrown, outcome.trajectory_id, one.whole.new.channel)
                counts.replaced += 1
                self._note(one, f"{', '.join(outgrown)} is a part of it, and excluded", lost=False)
            else:
                counts.added += 1
        if outcome.outcome == "known":
            counts.known += 1
        elif outcome.outcome == "deleted":
            counts.deleted += 1
            if "native_id" not in one.whole.origin and "session" not in one.whole.origin:
                self._deleted.add(one.name)
            self._note(one, "it was deleted on request, and does not come back", lost=False)
        elif outcome.outcome == "refused":
            counts.refused += 1
            self._note(one, f"it cannot be stored: {outcome.reason}")
        for reason, number in outcome.excluded.items():
            counts.excluded[reason] = counts.excluded.get(reason, 0) + number
            self._note(one, f"{number} of its steps are stored and not served: {reason}", lost=False)
        return outcome

    def _note(self, one: _Waiting, why: str, *, lost: bool = True) -> None:
        origin = one.whole.origin
        place = origin.get("native_id") or origin.get("session") or f"run {one.whole.origin.get('place')}"
        self.report.take(Note(file=one.file, place=place, why=why, lost=lost))

    def _add_version(self, one: _Waiting) -> tuple[AddedTrajectory, bool]:
        """Store what has changed under the next free name, and exclude what it takes the place of; whether it does.

        Nothing is stored of an earlier part of what is there. What a session takes the place of is only what it has
        grown out of, as others may be called the same and begin alike; and no part of a trace that of another.
        """
        assert self._pool is not None
        there_before = versions(self._pool, one.name)
        grown: list[str] = []
        if not any(is_same(found, one.whole) for found in there_before):
            for found in reversed(there_before):
                related = relation(self._pool, one.whole, found)
                if related == "earlier":
                    why = f"it is an earlier part of {found.trajectory_id}, which is there: nothing is stored"
                    self._note(one, why, lost=False)
                    return AddedTrajectory(trajectory_id=found.trajectory_id, outcome="known"), False
                if related == "later":
                    grown.append(found.trajectory_id)
        older: list[str] = []
        replaced = False
        for number in range(2, _VERSIONS):
            older.append(version(one.name, number - 1))
            outcome = self._pool.add_whole([renamed(one.whole, version(one.name, number))])[0]
            if outcome.outcome != "differs":
                break
        if outcome.outcome in ("added", "known"):
            replaces = older if "native_id" in one.whole.origin else grown
            replaces = [each for each in replaces if each in grown or not is_other_part(self._pool, one.whole, each)]
            replaced = exclude_older(self._pool, replaces, outcome.trajectory_id, one.whole.new.channel)
        elif outcome.outcome == "deleted":
            own = [each for each in there(self._pool, older).values() if each.channel == one.whole.new.channel]
            for latest in own[-1:]:
                self._take_back(one, latest)
        if outcome.outcome == "added":
            changed = "it has changed since it was imported" if replaced else "another run of its name is there"
            self._note(one, f"{changed}: stored as {outcome.trajectory_id}", lost=False)
        return outcome, replaced


def import_paths(
    pool: Pool | None,
    paths: Iterable[Path | str],
    format: str = "auto",
    *,
    placing: Placing | None = None,
    limits: Limits = USUAL,
    limit: int | None = None,
    deriver: Deriver | None = None,
    keep_thinking: bool = False,
    progress: Progress = no_progress,
) -> ImportReport:
    """Import files, folders and archives into a pool; None only counts, and says what would be lost. See `Importer`."""
    options: dict[str, Any] = {"placing": placing, "limits": limits, "limit": limit, "deriver": deriver}
    importer = Importer(pool, format, keep_thinking=keep_thinking, progress=progress, **options)
    return importer.run([Path(path) for path in paths])
