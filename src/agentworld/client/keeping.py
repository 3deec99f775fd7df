"""Deletion on request and retention over HTTP, for who has the scope admin."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec

from agentworld.client.calls import Call
from agentworld.client.wire import API
from agentworld.pool.keeping.records import Collection, Deletion, Progress, Retention, no_progress
from agentworld.records import exact_json

T = TypeVar("T")
SECONDS = 3600.0
"""That a server may take for what grows with the pool."""


class KeepingMethods(ABC):
    """The methods of a factory that take records out of the pool; what each does is said in
    agentworld.pool.keeping_methods. `purge`: rewrite the pool then, so that no file of it holds what is gone.
    """

    @abstractmethod
    def _send(self, call: Call[T]) -> T:
        """Send a call and read its reply."""

    def delete_trajectories(
        self,
        trajectory_ids: Sequence[str],
        reason: str | None = None,
        *,
        purge: bool = False,
        progress: Progress = no_progress,
    ) -> Deletion:
        """See Pool. One call for each; those before one that fails are deleted, and can be named again."""
        done = Deletion()
        for number, name in enumerate(trajectory_ids, 1):
            last = number == len(trajectory_ids)
            done = _together(done, self._send(deletion(name, reason, purge and last)))
            progress("trajectories", number, len(trajectory_ids))
        return done

    def delete_user(
        self, user: str, reason: str | None = None, *, purge: bool = False, progress: Progress = no_progress
    ) -> Deletion:
        """See Pool. One call, which tells no progress."""
        return self._send(deletion_of_user(user, reason, purge))

    def collect(
        self,
        retention: Retention | None = None,
        *,
        dry_run: bool = False,
        include_waiting: bool = False,
        purge: bool = False,
        progress: Progress = no_progress,
    ) -> Collection:
        """See Pool. One call, which tells no progress."""
        return self._send(collection(retention, dry_run, include_waiting, purge))


class AsyncKeepingMethods(ABC):
    """As KeepingMethods, for event loops."""

    @abstractmethod
    async def _send(self, call: Call[T]) -> T:
        """Send a call and read its reply."""

    async def delete_trajectories(
        self,
        trajectory_ids: Sequence[str],
        reason: str | None = None,
        *,
        purge: bool = False,
        progress: Progress = no_progress,
    ) -> Deletion:
        """See Pool. One call for each; those before one that fails are deleted, and can be named again."""
        done = Deletion()
        for number, name in enumerate(trajectory_ids, 1):
            last = number == len(trajectory_ids)
            done = _together(done, await self._send(deletion(name, reason, purge and last)))
            progress("trajectories", number, len(trajectory_ids))
        return done

    async def delete_user(
        self, user: str, reason: str | None = None, *, purge: bool = False, progress: Progress = no_progress
    ) -> Deletion:
        """See Pool. One call, which tells no progress."""
        return await self._send(deletion_of_user(user, reason, purge))

    async def collect(
        self,
        retention: Retention | None = None,
        *,
        dry_run: bool = False,
        include_waiting: bool = False,
        purge: bool = False,
        progress: Progress = no_progress,
    ) -> Collection:
        """See Pool. One call, which tells no progress."""
        return await self._send(collection(retention, dry_run, include_waiting, purge))


def deletion(trajectory_id: str, reason: str | None, purge: bool) -> Call[Deletion]:
    """Delete one trajectory; again is no error."""
    asked = {"purge": "true"} if purge else {}
    if reason is not None:
        asked["reason"] = reason
    place = f"{API}/trajectories/{quote(trajectory_id, safe='')}"
    return Call("DELETE", f"{place}?{urlencode(asked)}" if asked else place, Deletion, timeout=SECONDS)


def deletion_of_user(user: str, reason: str | None, purge: bool) -> Call[Deletion]:
    """Delete all of one user's; again is no error."""
    body = exact_json.encode({"user": user, "reason": reason, "purge": purge})
    return Call("POST", f"{API}/pool/delete", Deletion, body, timeout=SECONDS)


def collection(retention: Retention | None, dry_run: bool, include_waiting: bool, purge: bool) -> Call[Collection]:
    """Take out what `retention` names, then garbage; again, what has come since."""
    limits = msgspec.structs.asdict((retention or Retention()).checked())
    body = exact_json.encode({**limits, "dry_run": dry_run, "include_waiting": include_waiting, "purge": purge})
    return Call("POST", f"{API}/pool/retain", Collection, body, timeout=SECONDS)


def _together(one: Deletion, other: Deletion) -> Deletion:
    # The counts add up, and so do the lists of what is unknown.
    return Deletion(**{name: getattr(one, name) + getattr(other, name) for name in Deletion.__struct_fields__})
