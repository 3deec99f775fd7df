"""Runs into a pool, beside what it has of them.

The same run read again is known by its digest, and an earlier part of a run that is there by what it holds. A run that
has grown or changed since is stored beside the one that is there, as `ID.2`, `ID.3` and so on, and the older ones of
its channel are excluded by a manual decision; so are runs of its parts that were imported before by themselves.
"""

from __future__ import annotations

from typing import NamedTuple

from agentworld.ingest.former import FormerImports
from agentworld.ingest.growth import is_other_part, relation
from agentworld.ingest.kinship import Kin
from agentworld.ingest.report import ImportReport
from agentworld.ingest.run import Note
from agentworld.ingest.versions import exclude_older, is_same, take_back, there, version, versions
from agentworld.ingest.wholes import renamed
from agentworld.pool.protocol import Pool
from agentworld.records import AddedTrajectory, Trajectory, WholeTrajectory

_VERSIONS = 10_000


class Waiting(NamedTuple):
    """What is to be stored; `first`: the id of the first of the runs that are equal to it, where that is another;
    `kin`: ids under which the pool may have it, or some of it, besides.
    """

    format: str
    file: str
    whole: WholeTrajectory
    first: str | None
    kin: Kin

    @property
    def name(self) -> str:
        """Its id in the pool."""
        return self.whole.new.trajectory_id or ""


class Storing:
    """Stores runs, and tells a report what became of each."""

    def __init__(self, pool: Pool, report: ImportReport) -> None:
        self._pool, self._report = pool, report
        self._former = FormerImports(pool)
        self._outgrown: dict[str, tuple[str, ...]] = {}  # of runs that are to be stored, what they take the place of
        self._deleted: set[str] = set()  # runs without a name that were deleted on request

    def store(self, waiting: list[Waiting]) -> None:
        """Store what is not there, and tell the report what became of each."""
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

    def _add(self, waiting: list[Waiting]) -> None:
        if not waiting:
            return
        waiting = [one for one in waiting if not self._is_within(one) and not self._is_former(one)]
        outcomes = self._pool.add_whole([one.whole for one in waiting])
        known: list[tuple[Waiting, str]] = []
        for one, outcome in zip(waiting, outcomes, strict=True):
            settled = self._settle(one, outcome)
            if one.kin.parts and settled.outcome in ("added", "known"):
                self._take_in(one, settled.trajectory_id)
            if settled.outcome == "known":
                known.append((one, settled.trajectory_id))
        present = there(self._pool, [name for _, name in known])
        for one, name in known:
            if (found := present.get(name)) is not None:
                self._tell_known(one, found)

    def _is_within(self, one: Waiting) -> bool:
        """Whether all of it is in the run that it goes on from, or that began it, which was imported with it before."""
        holder = one.kin.holder
        if holder is None:
            return False
        if there(self._pool, [one.name]):
            return False  # It is there by itself too.
        for found in reversed(versions(self._pool, holder)):
            if relation(self._pool, one.whole, found) == "earlier":
                self._report.of(one.format).known += 1
                why = f"it is in {found.trajectory_id}, which is there: nothing is stored"
                self._note(one, why, lost=False)
                return True
        return False

    def _take_in(self, one: Waiting, name: str) -> None:
        """Exclude what of it was imported before by itself."""
        for found in there(self._pool, one.kin.parts).values():
            within = [
                each.trajectory_id
                for each in [found, *versions(self._pool, found.trajectory_id)[1:]]
                if each.readiness != "excluded" and relation(self._pool, one.whole, each) == "later"
            ]
            if within and exclude_older(self._pool, within, name, one.whole.new.channel):
                self._note(one, f"{', '.join(within)} is a part of it, and excluded", lost=False)

    def _is_former(self, one: Waiting) -> bool:
        """Whether the pool has all of it under another id; what an earlier import has of it is kept in mind."""
        kin = one.kin
        if not (kin.content or kin.alone or kin.exported) or there(self._pool, [one.name]):
            return False
        former = self._former.find(one.whole, kin)
        if former.outgrown:
            self._outgrown[one.name] = former.outgrown
        if former.outcome is None:
            return False
        self._settle(one, AddedTrajectory(trajectory_id=former.name, outcome=former.outcome))
        if former.outcome == "known":
            why = "it is there under another id: nothing is stored"
            self._note(one, why, lost=False, hint=f"See {former.name}")
        return True

    def _tell_known(self, one: Waiting, found: Trajectory) -> None:
        if found.channel != one.whole.new.channel:
            why = f"it is there already, in the channel {found.channel}, and stays there"
            self._note(one, why, lost=False)
        self._take_back(one, found)

    def _take_back(self, one: Waiting, found: Trajectory) -> None:
        if take_back(self._pool, found):
            why = f"{found.trajectory_id} is no longer excluded: what had taken its place was deleted"
            self._note(one, why, lost=False)

    def _settle(self, one: Waiting, outcome: AddedTrajectory) -> AddedTrajectory:
        counts = self._report.of(one.format)
        if outcome.outcome == "differs":
            outcome, replaced = self._add_version(one)
            if outcome.outcome == "added" and replaced:
                counts.replaced += 1
            elif outcome.outcome == "added":
                counts.added += 1
        elif outcome.outcome == "added":
            outgrown = self._outgrown.pop(one.name, ())
            if outgrown:
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

    def _note(self, one: Waiting, why: str, *, lost: bool = True, hint: str | None = None) -> None:
        origin = one.whole.origin
        place = origin.get("native_id") or origin.get("session") or f"run {one.whole.origin.get('place')}"
        self._report.take(Note(file=one.file, place=place, why=why, hint=hint, lost=lost))

    def _add_version(self, one: Waiting) -> tuple[AddedTrajectory, bool]:
        """Store what has changed under the next free name, and exclude what it takes the place of; whether it does.

        Nothing is stored of an earlier part of what is there. What a session takes the place of is only what it has
        grown out of, as others may be called the same and begin alike; and no part of a trace that of another.
        """
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
