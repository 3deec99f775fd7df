"""Keeping: retention, pins, deletion on request, garbage, checks.

Each piece of work is a bounded transaction of its own, so that writers of all processes go on between two; what is
broken off is gone on with by the next collection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import func, select

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
from agentworld.pool.sql import garbage, keeping
from agentworld.pool.sql.deletion import EVENTS_AT_ONCE, Removed, bury, remove, scrub_events, write_scrubbed
from agentworld.pool.sql.garbage import Dropped, Loose
from agentworld.pool.sql.signals import add_event
from agentworld.pool.sql.sizes import content_bytes
from agentworld.pool.sql.statements import parameter, sql
from agentworld.pool.sql.store_media import MediaMethods
from agentworld.pool.sql.transaction import Transaction

_AT_ONCE = 200  # trajectories that one look at retention finds
_COUNTER = sql(select(schema.counters.c.value).where(schema.counters.c.name == parameter("name")))
_LAST_EVENT = sql(select(func.coalesce(func.max(schema.events.c.pk), 0)))


class _Part(NamedTuple):
    removed: Removed
    loose: Loose
    dropped: Dropped


class KeepingMethods(MediaMethods):
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
        deletion = Deletion()
        for number, trajectory_id in enumerate(dict.fromkeys(trajectory_ids)):
            progress("delete", number, len(trajectory_ids))
            self._delete(trajectory_id, reason, deletion)
        self._scrub_events([each for each in trajectory_ids if each not in deletion.unknown], progress)
        progress("delete", len(trajectory_ids), len(trajectory_ids))
        return deletion

    def delete_user(self, user: str, reason: str | None = None, *, progress: Progress = no_progress) -> Deletion:
        """See Pool."""
        check_deletion([], reason)
        check_user(user)
        deletion = Deletion()
        gone: list[str] = []
        with self._database.reading() as reader:
            if not keeping.trajectories_of_user(reader, user, 1):
                return Deletion(unknown=[user])
        # First, so that nothing new of the user comes in between.
        self._writer.submit(lambda txn: bury(txn, "user", user, reason)).result()
        while True:
            with self._database.reading() as reader:
                found = keeping.trajectories_of_user(reader, user, _AT_ONCE)
            if not found:
                break
            for trajectory_id in found:
                self._delete(trajectory_id, reason, deletion)
                gone.append(trajectory_id)
                progress("delete", len(gone), None)
        self._scrub_events(gone, progress)
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
            self._finish_removals(done)
            if self._count(counters.TOMBSTONES):
                self._scrub_events(None, progress)
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
    def _delete(self, trajectory_id: str, reason: str | None, deletion: Deletion) -> None:
        first = True
        there = False
        while True:

            def operation(txn: Transaction, first: bool = first) -> _Part:
                if first:
                    # Before anything goes, so that nothing comes in between.
                    bury(txn, "trajectory", trajectory_id, reason)
                return _remove_part(txn, trajectory_id)

            part = self._writer.submit(operation).result()
            first = False
            there = there or part.removed.there
            self._drop(part.loose, part.dropped, media_seconds=0.0)
            deletion.steps += part.removed.steps
            _add(deletion, part.dropped)
            if part.removed.gone:
                break
        if there:
            deletion.trajectories += 1
        else:
            deletion.unknown.append(trajectory_id)

    def _drop(self, loose: Loose, dropped: Dropped, media_seconds: float) -> None:
        while loose:
            self._writer.submit(lambda txn: garbage.drop_loose(txn, loose, dropped, media_seconds)).result()
        self._remove_blobs(dropped.outside)

    def _scrub_events(self, trajectory_ids: Sequence[str] | None, progress: Progress) -> None:
        """Take out of events what deleted trajectories held; None: of all that were ever deleted."""
        if trajectory_ids is not None and not trajectory_ids:
            return
        with self._database.reading() as reader:
            last = reader.execute(_LAST_EVENT)[0][0]
        for above in range(0, last, EVENTS_AT_ONCE):
            with self._database.reading() as reader:
                changed = scrub_events(reader, trajectory_ids, above, above + EVENTS_AT_ONCE)
            for begin in range(0, len(changed), _AT_ONCE):
                part = changed[begin : begin + _AT_ONCE]
                self._writer.submit(lambda txn, part=part: write_scrubbed(txn, part)).result()  # type: ignore[misc]
            progress("events", min(above + EVENTS_AT_ONCE, last), last)

    def _finish_removals(self, done: Collection) -> None:
        while True:
            with self._database.reading() as reader:
                found = keeping.left_over(reader, _AT_ONCE)
            for trajectory_id in found:
                self._remove(trajectory_id, done)
            if len(found) < _AT_ONCE:
                return

    def _remove(self, trajectory_id: str, done: Collection) -> None:
        while True:
            part = self._writer.submit(lambda txn: _remove_part(txn, trajectory_id)).result()
            self._drop(part.loose, part.dropped, garbage.MEDIA_SECONDS)
            done.steps += part.removed.steps
            _add(done, part.dropped)
            if part.removed.gone:
                break
        done.trajectories += 1

    def _retain(self, retention: Retention, include_waiting: bool, done: Collection, progress: Progress) -> None:
        over = self._over_size(retention)
        above = 0
        while True:
            # Sizes name the oldest of all, so they go first; then the other limits look from the begin again.
            anything = over is not None and over > done.steps
            with self._database.reading() as reader:
                found = keeping.candidates(reader, retention, anything, above, _AT_ONCE, self._clock())
            if not found:
                if over is None:
                    return
                over, above = None, 0
                continue
            for candidate in found:
                above = candidate.pk
                if anything and over is not None and done.steps >= over:
                    over, above = None, 0
                    break
                if candidate.pinned:
                    done.kept_pinned += 1
                elif candidate.leased:
                    done.kept_leased += 1
                elif candidate.waiting and not include_waiting:
                    done.kept_waiting += 1
                elif done.dry_run:
                    done.trajectories += 1
                    done.steps += candidate.steps
                else:
                    self._remove(candidate.trajectory_id, done)
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
                    loose, dropped = Loose(), Dropped()
                    getattr(loose, kind).update(bytes(row) if kind == "media" else row for row in found)
                    self._drop(loose, dropped, garbage.MEDIA_SECONDS)
                    _add(done, dropped)
                upto = above
                progress("garbage: " + kind, total - upto, total)
        if not done.dry_run:
            self._remove_blobs(self._stray_blobs())


def _remove_part(txn: Transaction, trajectory_id: str) -> _Part:
    loose, dropped = Loose(), Dropped()
    return _Part(remove(txn, trajectory_id, loose), loose, dropped)


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
