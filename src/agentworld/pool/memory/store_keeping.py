"""Keeping, in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from agentworld.errors import ConfigError, NotFoundError
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
from agentworld.pool.media import Medium, check_medium, media_digest, media_uses_of, read_digest
from agentworld.pool.memory import datasets, keeping
from agentworld.pool.memory.store_state import StateMethods
from agentworld.pool.parquet.manifest import Imported, Manifest
from agentworld.records import Trajectory

_MEDIA_SECONDS = 86_400.0


class KeepingMethods(StateMethods):
    """See agentworld.pool.keeping."""

    # --- pins -------------------------------------------------------------------------------------------------
    def pin(self, owner_kind: str, owner: str, trajectory_ids: Sequence[str]) -> int:
        """See Pool."""
        check_owner(owner_kind, owner)
        with self._open():
            for trajectory_id in trajectory_ids:
                if trajectory_id not in self._state.trajectories:
                    raise NotFoundError(f"no trajectory {trajectory_id!r}; nothing was pinned", path="trajectory_ids")
            keys = [(owner_kind, owner, each) for each in dict.fromkeys(trajectory_ids)]
            new = [key for key in keys if key not in self._state.pins]
            self._state.pins.update(dict.fromkeys(new, self._state.clock()))
            return len(new)

    def unpin(self, owner_kind: str, owner: str) -> int:
        """See Pool."""
        check_owner(owner_kind, owner)
        with self._open():
            gone = [key for key in self._state.pins if key[:2] == (owner_kind, owner)]
            for key in gone:
                del self._state.pins[key]
            return len(gone)

    def pins(
        self,
        *,
        owner_kind: str | None = None,
        owner: str | None = None,
        trajectory_id: str | None = None,
        limit: int = 1000,
    ) -> list[Pin]:
        """See Pool."""
        check_limit(limit)
        with self._open():
            there = [*(Pin(*key, at) for key, at in self._state.pins.items()), *datasets.pins(self._state)]
            found = sorted(
                (
                    (one.owner_kind, one.owner, one.trajectory_id, one.created_at)
                    for one in there
                    if owner_kind in (None, one.owner_kind)
                    and owner in (None, one.owner)
                    and trajectory_id in (None, one.trajectory_id)
                ),
            )
            return [Pin(*one) for one in found[:limit]]

    # --- deletion on request ----------------------------------------------------------------------------------
    def delete_trajectories(
        self, trajectory_ids: Sequence[str], reason: str | None = None, *, progress: Progress = no_progress
    ) -> Deletion:
        """See Pool."""
        check_deletion(trajectory_ids, reason)
        with self._open():
            return self._delete(trajectory_ids, reason, progress)

    def delete_user(self, user: str, reason: str | None = None, *, progress: Progress = no_progress) -> Deletion:
        """See Pool."""
        check_deletion([], reason)
        check_user(user)
        with self._open():
            found = [each for each, there in self._state.trajectories.items() if there.user == user]
            if not found:
                return Deletion(unknown=[user])
            self._bury("user", user, reason)
            return self._delete(found, reason, progress)

    def tombstones(self, after: int = 0, limit: int = 100) -> list[Tombstone]:
        """See Pool."""
        with self._open():
            return self._state.buried[check_after(after) :][: check_limit(limit)]

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
        with self._open():
            done = Collection(dry_run=dry_run)
            before = self._content()
            shown = self._shown_media()
            done.datasets = datasets.drop_broken_off(self._state, dry_run=dry_run)
            pinned = {key[2] for key in self._state.pins} | {pin.trajectory_id for pin in datasets.pins(self._state)}
            for there in self._named(retention, done):
                if there.trajectory_id in pinned:
                    done.kept_pinned += 1
                elif keeping.is_leased(self._state, self._leases, there):
                    done.kept_leased += 1
                elif not include_waiting and keeping.is_waiting(self._state, self._leases, there):
                    done.kept_waiting += 1
                else:
                    done.trajectories += 1
                    done.steps += there.step_count
                    if not dry_run:
                        keeping.remove(self._state, self._leases, there.trajectory_id)
                progress("retention", done.trajectories, None)
            if dry_run:
                done.media = len(self._loose_media())
                return done
            keeping.recount_content(self._state)
            after = self._content()
            done.token_blocks, done.message_nodes, done.tool_sets = (
                old - new for old, new in zip(before, after, strict=True)
            )
            # A blob goes with the last message that shows it; one that none has shown yet, after a day.
            for digest in dict.fromkeys([*sorted(shown - self._shown_media()), *self._loose_media()]):
                if digest not in self._state.media:
                    continue
                done.media += 1
                done.media_bytes += len(self._state.media.pop(digest)[0].data)
            if done.trajectories or done.media:
                data = {"trajectories": done.trajectories, "steps": done.steps}
                self._state.add_event("pool.collected", data=data)
            return done

    def purge(self, *, progress: Progress = no_progress) -> None:
        """See Pool; memory holds nothing of what was deleted."""
        with self._open():
            progress("rewrite", 1, 1)

    def backup(self, path: Path, *, progress: Progress = no_progress) -> None:
        """See Pool."""
        raise ConfigError("a pool in memory has no backup", path="pool", hint="Keep it in a file: sqlite:///pool.db")

    def export_parquet(
        self,
        folder: Path,
        *,
        where: str | None = None,
        channel: str | None = None,
        dataset: str | None = None,
        progress: Progress = no_progress,
    ) -> Manifest:
        """See Pool."""
        raise ConfigError("a pool in memory has no export", path="pool", hint="Keep it in a file: sqlite:///pool.db")

    def import_parquet(self, folder: Path, *, progress: Progress = no_progress) -> Imported:
        """See Pool."""
        raise ConfigError("a pool in memory has no import", path="pool", hint="Keep it in a file: sqlite:///pool.db")

    def check(self, *, progress: Progress = no_progress, deep: bool = True) -> list[Problem]:
        """See Pool; what the other stores count is derived here, so that only the figures of records can be wrong."""
        hint = "This is a fault of the store: report it"
        with self._open():
            found = []
            for trajectory_id, there in self._state.trajectories.items():
                steps = self._state.steps_of[trajectory_id]
                if there.step_count != len(steps):
                    message = f"step_count is {there.step_count}, its steps give {len(steps)}"
                    found.append(Problem("count", "trajectories", trajectory_id, message, hint))
                for step_id in steps:
                    if step_id not in self._state.steps:
                        message = f"it names the step {step_id}, which is not there"
                        found.append(Problem("reference", "trajectories", trajectory_id, message, hint))
            found += datasets.problems(self._state)
            for number, event in enumerate(self._state.events, 1):
                if event.sequence != number:
                    message = f"the event is number {number}"
                    found.append(Problem("sequence", "events", str(event.sequence), message, hint))
            for digest, (medium, _) in self._state.media.items():
                if media_digest(medium.data) != digest:
                    found.append(
                        Problem("media", "media", medium.digest, "the bytes are not those of its digest", hint)
                    )
            return found

    # --- media ------------------------------------------------------------------------------------------------
    def put_media(self, data: bytes, media_type: str) -> str:
        """See Pool."""
        check_medium(data, media_type)
        digest = media_digest(data)
        with self._open():
            medium = Medium(digest.hex(), media_type, data)
            self._state.media.setdefault(digest, (medium, self._state.clock()))
            return digest.hex()

    def get_media(self, digest: str) -> Medium:
        """See Pool."""
        named = read_digest(digest)
        with self._open():
            found = self._state.media.get(named)
            if found is None:
                raise NotFoundError(f"no medium {digest!r}", path="digest")
            return found[0]

    # --- the work ---------------------------------------------------------------------------------------------
    def _delete(self, trajectory_ids: Sequence[str], reason: str | None, progress: Progress) -> Deletion:
        state = self._state
        deletion = Deletion()
        before = self._content()
        shown = self._shown_media()
        buried: set[str] = set()
        for number, trajectory_id in enumerate(dict.fromkeys(trajectory_ids)):
            progress("delete", number, len(trajectory_ids))
            self._bury("trajectory", trajectory_id, reason)
            steps = list(state.steps_of.get(trajectory_id, []))
            there = state.trajectories.get(trajectory_id)
            gone = keeping.remove(state, self._leases, trajectory_id)
            buried.update(steps)
            for step_id in steps:
                self._bury("step", step_id, reason)
            if gone is None:
                deletion.unknown.append(trajectory_id)
                continue
            deletion.trajectories += 1
            deletion.steps += gone
            for key in [key for key in state.pins if key[2] == trajectory_id]:
                del state.pins[key]
            if there is not None:
                state.add_event("trajectory.deleted", trajectory_id, channel=there.channel)
        keeping.scrub_events(state, set(trajectory_ids))
        datasets.scrub(state, set(trajectory_ids), buried)
        keeping.recount_content(state)
        after = self._content()
        deletion.token_blocks, deletion.message_nodes, deletion.tool_sets = (
            old - new for old, new in zip(before, after, strict=True)
        )
        for digest in shown - self._shown_media():
            deletion.media += state.media.pop(digest, None) is not None
        return deletion

    def _bury(self, kind: str, target_id: str, reason: str | None) -> None:
        if (kind, target_id) in self._state.tombstones:
            return
        self._state.tombstones[kind, target_id] = reason
        number = len(self._state.buried) + 1
        self._state.buried.append(Tombstone(number, kind, target_id, reason, self._state.clock()))

    def _named(self, retention: Retention, done: Collection) -> Iterator[Trajectory]:
        """Trajectories that retention names, oldest first; those that only a size names while it is exceeded."""
        state = self._state
        ended = [
            there
            for there in state.trajectories.values()
            if there.status != "open" and (retention.channels is None or there.channel in retention.channels)
        ]
        over = self._over_size(retention)
        oldest = []
        for there in ended:
            if done.steps >= over:
                break
            oldest.append(there.trajectory_id)
            yield there
        for there in ended:
            if there.trajectory_id in oldest or there.trajectory_id not in state.trajectories:
                continue
            age = state.clock() - (there.completed_at or 0.0)
            lag = keeping.lag(state, there)
            old = retention.max_age is not None and age >= retention.max_age
            if old or (retention.max_policy_lag is not None and lag is not None and lag > retention.max_policy_lag):
                yield there

    def _over_size(self, retention: Retention) -> int:
        steps = len(self._state.steps)
        allowed = steps if retention.max_steps is None else min(steps, retention.max_steps)
        if retention.max_bytes is not None and steps:
            used = sum(len(found.content) for found in self._state.steps.values())
            used += 4 * self._state.tokens_in_tails + 512 * len(self._state.blocks)
            if used > retention.max_bytes:
                allowed = min(allowed, steps * retention.max_bytes // used)
        return steps - allowed

    def _content(self) -> tuple[int, int, int]:
        tools = {str(found.step.tools) for found in self._state.steps.values() if found.step.tools is not None}
        return len(self._state.blocks), len(self._state.nodes), len(tools)

    def _shown_media(self) -> set[bytes]:
        shown: set[bytes] = set()
        for found in self._state.steps.values():
            step = found.step
            for message in [*(step.prompt_messages or []), *([step.response_message] if step.response_message else [])]:
                shown.update(media_uses_of(message))
        return shown

    def _loose_media(self) -> list[bytes]:
        before = self._state.clock() - _MEDIA_SECONDS
        shown = self._shown_media()
        return [digest for digest, (_, at) in self._state.media.items() if digest not in shown and at <= before]
