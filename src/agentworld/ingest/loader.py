"""Files into a pool: runs are read as a stream and stored in portions, each trajectory whole or not at all."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentworld.errors import InvalidRequestError
from agentworld.ingest.collecting import seldom_collecting
from agentworld.ingest.examining import examine, name_of
from agentworld.ingest.files import StreamEntry
from agentworld.ingest.finding import check_paths, entries, files
from agentworld.ingest.format import Format
from agentworld.ingest.formats import get_format
from agentworld.ingest.kinship import kin_of
from agentworld.ingest.limits import USUAL, Limits
from agentworld.ingest.occurrences import Occurrences
from agentworld.ingest.reading import Read, read_entries
from agentworld.ingest.report import ImportReport
from agentworld.ingest.run import Note
from agentworld.ingest.storing import Storing, Waiting
from agentworld.ingest.thinking import split_thinking
from agentworld.ingest.wholes import EMPTY, PRIMARY, Placing, is_empty, is_session, make_whole
from agentworld.pool.keeping.records import Progress, no_progress
from agentworld.pool.protocol import Pool
from agentworld.records import WholeTrajectory

if TYPE_CHECKING:
    from agentworld.ingest.deriving import Deriver

# What waits is stored once it has so much: several transactions of the pool, which take one while the next is made.
_STEPS, _TRAJECTORIES, _BYTES = 1024, 256, 16 * 1024 * 1024


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
        self._waiting: list[Waiting] = []
        self._waiting_steps = self._waiting_bytes = 0
        self._numbers: dict[str, int] = {}  # of the runs of each file of a bundle, from 0
        self._named: set[tuple[str, ...]] = set()
        self._occurrences = Occurrences()
        self._split_in: str | None = None  # the file of which it was said last
        self._storing = None if pool is None else Storing(pool, self.report)

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
            kin = kin_of(format, run, facts, self._placing)
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
        self._waiting.append(Waiting(format, file, whole, first, kin))
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
        """Say once for each set of names that no reward became the primary one, or not the one that was chosen."""
        names = sorted({reward.name for reward in whole.rewards if reward.step_id is None})
        chosen = self._placing.reward_name
        if not names or (chosen or PRIMARY) in names:
            return
        if (key := tuple(names)) not in self._named and len(self._named) < 100:
            self._named.add(key)
            why = f"none of the rewards {', '.join(names)} is {'the primary one' if chosen is None else repr(chosen)}"
            hint = "Choose it with --reward-name" if chosen is None else "Choose one of these with --reward-name"
            self.report.take(Note(file=file, place=name, why=why, hint=hint, lost=False))

    def _store(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._waiting_steps = self._waiting_bytes = 0
        if self._storing is not None:
            self._storing.store(waiting)


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
