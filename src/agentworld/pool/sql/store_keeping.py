"""Keeping: retention, pins, deletion on request, garbage, checks.

Each piece of work is a bounded transaction of its own, so that writers of all processes go on between two; what is
broken off is gone on with by the next collection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from sqlalchemy import select

from agentworld.errors import NotFoundError
from agentworld.pool import counters, schema
from agentworld.pool.base import check_after, check_limit
from agentworld.pool.keeping.records import (
    Collection,
    Deletion,
    Pin,
    Problem,
    Progress,
    Retention,
    Tombstone,
    no_progress,
)
from agentworld.pool.keeping.rules import check_deletion, check_owner, check_user
from agentworld.pool.sql import garbage, keeping, scrubbing
from agentworld.pool.sql.dataset_keeping import DatasetKeeping
from agentworld.pool.sql.deletion import Removed, bury, remove
from agentworld.pool.sql.events import add_event
from agentworld.pool.sql.garbage import Dropped, Loose
from agentworld.pool.sql.sizes import content_bytes
from agentworld.pool.sql.statements import parameter, sql
from agentworld.pool.sql.store_media import MediaMethods
from agentworld.pool.sql.transaction import Transaction

_AT_ONCE = 200  # trajectories that one look at retention finds
_TOGETHER = 50  # trajectories that one transaction begins to remove
_COUNTER = sql(select(schema.counters.c.value).where(schema.counters.c.name == parameter("name")))


class _Part(NamedTuple):
    """What one transaction took, and of what it was to take, what was held when it came to it."""

    removed: Removed
    loose: Loose
    held: list[keeping.Held]


class KeepingMethods(MediaMethods, DatasetKeeping):
    """See agentworld.pool.keeping."""

    # --- pins -------------------------------------------------------------------------------------------------
    def pin(self, owner_kind: str, owner: str, trajectory_ids: Sequence[str]) -> int:
        """See Pool."""
        check_owner(owner_kind, owner)
        new, missing = self._writer.submit(lambda txn: keeping.pin(txn, owner_kind, owner, trajectory_ids)).result()
        if missing:
            raise NotFoundError(f"no trajectory {missing[0]!r}; nothing was pinned", path="trajectory_ids")
        return new

    def unpin(self, owner_kind: str, owner: str) -> int:
        """See Pool."""
        check_owner(owner_kind, owner)
        return self._writer.submit(lambda txn: keeping.unpin(txn, owner_kind, owner)).result()

    def pins(
        self,
        *,
        owner_kind: str | None = None,
        owner: str | None = None,
        trajectory_id: str | None = None,
        limit: int = 1000,
    ) -> list[Pin]:
        """See Pool."""
        given = {"owner_kind": owner_kind, "owner": owner, "trajectory_id": trajectory_id}
        filters = {name: value for name, value in given.items() if value is not None}
        with self._database.reading() as reader:
            return keeping.read_pins(reader, filters, check_limit(limit))

    # --- deletion on request ----------------------------------------------------------------------------------
    def delete_trajectories(
        self, trajectory_ids: Sequence[str], reason: str | None = None, *, progress: Progress = no_progress
    ) -> Deletion:
        """See Pool."""
        check_deletion(trajectory_ids, reason)
        self._check_media()
        deletion = Deletion()
        named = list(dict.fromkeys(trajectory_ids))
        number = self._writer.submit(scrubbing.begin).result()
        for begin in range(0, len(named), _TOGETHER):
            progress("delete", begin, len(named))
            self._delete(named[begin : begin + _TOGETHER], reason, deletion)
        self._scrub_events(named, progress)
        self._end(number, progress)
        progress("delete", len(named), len(named))
        return deletion

    def delete_user(self, user: str, reason: str | None = None, *, progress: Progress = no_progress) -> Deletion:
        """See Pool."""
        check_deletion([], reason)
        check_user(user)
        self._check_media()
        deletion = Deletion()
        gone: list[str] = []
        with self._database.reading() as reader:
            if not keeping.trajectories_of_user(reader, user, 1):
                deletion.unknown.append(user)
        if deletion.unknown:
            self._finish_deletions(progress)
            return deletion

        def begin(txn: Transaction) -> int:
            # First, so that nothing new of the user comes in between.
            bury(txn, "user", [user], [reason])
            return scrubbing.begin(txn)

        number = self._writer.submit(begin).result()
        while True:
            with self._database.reading() as reader:
                found = keeping.trajectories_of_user(reader, user, _TOGETHER)
            if not found:
                break
            self._delete(found, reason, deletion)
            gone += found
            progress("delete", len(gone), None)
        self._scrub_events(gone, progress)
        self._end(number, progress)
        return deletion

    def tombstones(self, after: int = 0, limit: int = 100) -> list[Tombstone]:
        """See Pool."""
        with self._database.reading() as reader:
            return keeping.read_tombstones(reader, check_after(after), check_limit(limit))

    # --- retention and garbage --------------------------------------------------------------------------------
    def collect(
        self,
        retention: Retention | None = None,
        *,
        dry_run: bool = False,
        include_waiting: bool = False,
        progress: Progress = no_progress,
    ) -> Collection:
        """See Pool."""
        retention = (retention or Retention()).checked()
        done = Collection(dry_run=dry_run)
        if not dry_run:
            self._check_media()
            self._finish_removals(done)
            self._finish_deletions(progress)
        done.datasets = self._drop_broken_off(dry_run)
        if retention.limits_anything:
            self._retain(retention, include_waiting, done, progress)
        self._sweep(done, progress)
        if not dry_run and (done.trajectories or done.token_blocks or done.message_nodes or done.media):
            data = {"trajectories": done.trajectories, "steps": done.steps}
            self._writer.submit(lambda txn: add_event(txn, "pool.collected", data=data)).result()
        return done

    def check(self, *, progress: Progress = no_progress, deep: bool = True) -> list[Problem]:
        """See Pool."""
        from agentworld.pool.sql.checking import check

        found = [*self._engine_problems(progress), *check(self._database, progress, deep)]
        return [*found, *self._outside_problems(progress)] if deep else found

    def _engine_problems(self, progress: Progress) -> list[Problem]:
        """Damage that the engine itself can name."""
        return []

    # --- the work ---------------------------------------------------------------------------------------------
    def _delete(self, trajectory_ids: Sequence[str], reason: str | None, deletion: Deletion) -> None:
        there: set[str] = set()
        pending = list(trajectory_ids)
        first = True
        while pending:

            def operation(txn: Transaction, first: bool = first, pending: list[str] = pending) -> _Part:
                if first:
                    # Before anything goes, so that nothing comes in between.
                    bury(txn, "trajectory", pending, [reason] * len(pending))
                return _remove_part(txn, pending)

            part = self._writer.submit(operation).result()
            first = False
            there |= part.removed.there
            deletion.steps += part.removed.steps
            _add(deletion, self._drop(part.loose))
            pending = [each for each in pending if each not in part.removed.gone]
        deletion.trajectories += len(there)
        deletion.unknown += [each for each in trajectory_ids if each not in there]

    def _drop(self, loose: Loose) -> Dropped:
        dropped = Dropped()
        while loose:
            self._writer.submit(lambda txn: garbage.drop_loose(txn, loose, dropped)).result()
        self._remove_blobs(dropped.outside)
        return dropped

    def _scrub_events(self, trajectory_ids: Sequence[str] | None, progress: Progress) -> None:
        """Take out of events what deleted trajectories held; None: of all that were ever deleted."""
        if trajectory_ids is not None and not trajectory_ids:
            return
        self._scrub_rows()
        with self._database.reading() as reader:
            last = scrubbing.last_event(reader)
        for above in range(0, last, scrubbing.EVENTS_AT_ONCE):
            upto = above + scrubbing.EVENTS_AT_ONCE
            with self._database.reading() as reader:
                changed = scrubbing.scrub_events(reader, trajectory_ids, above, upto)
            for begin in range(0, len(changed), _AT_ONCE):
                part = changed[begin : begin + _AT_ONCE]
                self._writer.submit(partial(scrubbing.write_scrubbed, rows=part)).result()
            progress("events", min(upto, last), last)

    def _end(self, number: int, progress: Progress) -> None:
        """A deletion has come to its end; where an earlier one was broken off, that is ended too."""

        def operation(txn: Transaction) -> bool:
            if scrubbing.is_next(txn, number):
                scrubbing.end(txn, number)
                return True
            return False

        if not self._writer.submit(operation).result():
            self._finish_deletions(progress)

    def _finish_deletions(self, progress: Progress) -> None:
        """End deletions that were broken off: whatever they left is looked for in the whole pool."""
        begun = self._count(scrubbing.ASKED)
        if begun <= self._count(scrubbing.SCRUBBED):
            return
        found = Collection()
        self._finish_removals(found)
        self._scrub_events(None, progress)
        self._sweep(found, progress)
        self._writer.submit(lambda txn: scrubbing.end(txn, begun)).result()

    def _finish_removals(self, done: Collection) -> None:
        while True:
            with self._database.reading() as reader:
                found = keeping.left_over(reader, _TOGETHER)
            self._remove(found, done, lambda txn, pending: [])
            if len(found) < _TOGETHER:
                return

    def _remove(
        self,
        trajectory_ids: Sequence[str],
        done: Collection,
        holds: Callable[[Transaction, Sequence[str]], list[keeping.Held]],
    ) -> None:
        """Remove trajectories, but those that `holds` names when it comes to it."""
        pending = list(trajectory_ids)
        first = True
        while pending:

            def operation(txn: Transaction, first: bool = first, pending: list[str] = pending) -> _Part:
                held = holds(txn, pending) if first else []
                names = {each.trajectory_id for each in held}
                free = [each for each in pending if each not in names]
                return _remove_part(txn, free)._replace(held=held)

            part = self._writer.submit(operation).result()
            first = False
            for held in part.held:
                _count_kept(done, held)
            done.steps += part.removed.steps
            done.trajectories += len(part.removed.gone)
            _add(done, self._drop(part.loose))
            left = part.removed.gone | {each.trajectory_id for each in part.held}
            pending = [each for each in pending if each not in left]

    def _retain(self, retention: Retention, include_waiting: bool, done: Collection, progress: Progress) -> None:
        over = self._over_size(retention)
        above = 0

        def holds(txn: Transaction, pending: Sequence[str]) -> list[keeping.Held]:
            return [held for held in keeping.held(txn, pending) if held.stays(include_waiting)]

        while True:
            # Sizes name the oldest of all, so they go first; the other limits look on behind these.
            anything = over is not None and over > done.steps
            with self._database.reading() as reader:
                found = keeping.candidates(reader, retention, anything, above, _AT_ONCE, self._clock())
            if not found:
                if not anything:
                    return
                over = None
                continue
            chosen: list[str] = []
            steps = done.steps
            for candidate in found:
                if anything and over is not None and steps >= over:
                    over = None
                    break
                above = candidate.pk
                if candidate.held.stays(include_waiting):
                    _count_kept(done, candidate.held)
                    continue
                chosen.append(candidate.held.trajectory_id)
                steps += candidate.steps
            if done.dry_run:
                done.trajectories += len(chosen)
                done.steps = steps
            else:
                for begin in range(0, len(chosen), _TOGETHER):
                    self._remove(chosen[begin : begin + _TOGETHER], done, holds)
                    progress("retention", done.trajectories, None)
            progress("retention", done.trajectories, None)

    def _over_size(self, retention: Retention) -> int | None:
        """How many steps must go so that the pool is within its sizes; None where it is."""
        if retention.max_steps is None and retention.max_bytes is None:
            return None
        steps = self._count(counters.STEPS)
        allowed = steps if retention.max_steps is None else min(steps, retention.max_steps)
        if retention.max_bytes is not None and steps:
            with self._database.reading() as reader:
                used = content_bytes(reader)
            if used > retention.max_bytes:
                # Steps of one pool are much alike, and what they share goes with its last user.
                allowed = min(allowed, steps * retention.max_bytes // used)
        return steps - allowed or None

    def _count(self, name: str) -> int:
        with self._database.reading() as reader:
            rows = reader.execute(_COUNTER, {"name": name})
        return int(rows[0][0]) if rows else 0

    def _sweep(self, done: Collection, progress: Progress) -> None:
        """Garbage that earlier work left behind, from the youngest row to the oldest, so that leaves come first."""
        for kind in ("blocks", "nodes", "tools", "media"):
            with self._database.reading() as reader:
                upto = total = garbage.highest(reader, kind)
            while upto > 0:
                above = max(0, upto - garbage.RANGE)
                with self._database.reading() as reader:
                    found = garbage.find_loose(reader, kind, above, upto, self._clock())
                if done.dry_run:
                    _count(done, kind, len(found))
                else:
                    loose = Loose()
                    getattr(loose, kind).update(bytes(row) if kind == "media" else row for row in found)
                    _add(done, self._drop(loose))
                upto = above
                progress("garbage: " + kind, total - upto, total)
        if not done.dry_run:
            self._remove_blobs(self._stray_blobs())


def _remove_part(txn: Transaction, trajectory_ids: Sequence[str]) -> _Part:
    loose = Loose()
    return _Part(remove(txn, trajectory_ids, loose), loose, [])


def _count_kept(total: Collection, held: keeping.Held) -> None:
    if held.pinned:
        total.kept_pinned += 1
    elif held.leased:
        total.kept_leased += 1
    else:
        total.kept_waiting += 1


def _add(total: Collection | Deletion, dropped: Dropped) -> None:
    total.token_blocks += dropped.token_blocks
    total.message_nodes += dropped.message_nodes
    total.tool_sets += dropped.tool_sets
    total.media += dropped.media
    if isinstance(total, Collection):
        total.media_bytes += dropped.media_bytes


def _count(total: Collection, kind: str, rows: int) -> None:
    names = {"blocks": "token_blocks", "nodes": "message_nodes", "tools": "tool_sets", "media": "media"}
    setattr(total, names[kind], getattr(total, names[kind]) + rows)
