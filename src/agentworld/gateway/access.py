"""Who calls, and what they may do: the key of a request, checked against the pool, becomes a grant.

Where keys are optional, a request without one of ours has all rights, whatever its client sends as a key; one of ours
is held to what it says. Where they are required, nothing is granted without one.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any

import msgspec
import structlog

from agentworld.errors import AgentWorldError, ForbiddenError, NotFoundError, UnauthorizedError
from agentworld.gateway import metrics
from agentworld.gateway.keys import PREFIX, SessionKey, read_session_key
from agentworld.pool.keys import SECRET_PREFIX, Scope, StoredKey, secret_digest
from agentworld.pool.protocol import Pool
from agentworld.records import Step, Trajectory

log = structlog.get_logger("agentworld.access")
CACHE_SECONDS = 2.0
"""So long a key may go on after it was revoked."""
CACHED = 10_000
MAX_SECRET = 1024
GRANT = "agentworld.grant"
"""Where a request's grant stands in its ASGI scope."""
_OWN_PREFIXES = (SECRET_PREFIX, PREFIX)


class Grant(msgspec.Struct, frozen=True):
    """What a caller may do. `channel` and `trajectory_id`: the only one that it sees and writes. `key_id` and `secret`
    (the digest that session keys are signed with) are those of the key, where there is one.
    """

    scopes: frozenset[Scope]
    channel: str | None = None
    trajectory_id: str | None = None
    key_id: str | None = None
    secret: bytes | None = None

    @property
    def bound(self) -> bool:
        """Whether it is for one channel or trajectory alone."""
        return self.channel is not None or self.trajectory_id is not None

    def allows(self, needed: Iterable[Scope]) -> bool:
        """Whether one of these scopes is granted."""
        return "admin" in self.scopes or not self.scopes.isdisjoint(needed)

    def covers(self, record: Step | Trajectory) -> bool:
        """Whether the record is in the channel and the trajectory that this grant is for."""
        return self.channel in (None, record.channel) and self.trajectory_id in (None, record.trajectory_id)

    def check_channel(self, channel: str | None, what: str) -> None:
        """ForbiddenError where `what` is in another channel than this grant is for."""
        if self.channel is not None and channel != self.channel:
            raise ForbiddenError(
                f"this key is for the channel {self.channel!r}, {what} is in {channel!r}",
                path="channel",
                hint="Use a key for that channel, or one that is bound to none",
            )

    def check_trajectory(self, trajectory_id: str | None) -> None:
        """ForbiddenError where this grant is for another trajectory."""
        if self.trajectory_id is not None and trajectory_id != self.trajectory_id:
            raise ForbiddenError(
                f"this key is for the trajectory {self.trajectory_id!r} alone",
                path="trajectory_id",
                hint="Use the key that came with the other trajectory",
            )


NOTHING = Grant(frozenset())
"""What a request may that nobody has checked."""
EVERYTHING = Grant(frozenset(("admin",)))


def grant_of(scope: MutableMapping[str, Any]) -> Grant:
    """The grant of a request: nothing where nobody has checked it. Who serves without any check of keys sets it."""
    found: Grant = scope.get(GRANT, NOTHING)
    return found


def presented_key(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The key in `Authorization: Bearer` or `x-api-key`, "" without one; of both, that which is one of ours."""
    bearer = plain = ""
    for name, value in headers:
        lower = name.lower()
        if lower == b"authorization" and value[:7].lower() == b"bearer " and not bearer:
            bearer = value[7:].decode("utf-8", "replace").strip()
        elif lower == b"x-api-key" and not plain:
            plain = value.decode("utf-8", "replace").strip()
    return plain if plain.startswith(_OWN_PREFIXES) and not bearer.startswith(_OWN_PREFIXES) else bearer or plain


class Access:
    """Checks keys for one server. `clock`: seconds since the epoch, as in the pool; `ticks`: of the cache."""

    def __init__(
        self,
        pool: Pool,
        *,
        required: bool,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self.required = required
        self._pool = pool
        self._clock = clock
        self._ticks = ticks
        self._known: OrderedDict[bytes | str, tuple[asyncio.Task[StoredKey | None], float]] = OrderedDict()

    async def grant(self, headers: Iterable[tuple[bytes, bytes]]) -> Grant:
        """What the key in the headers grants; UnauthorizedError where it is none that holds, or is missing."""
        key = presented_key(headers)
        session = read_session_key(key)
        if session is not None and (session.key_id is not None or self.required):
            return await self._session(session)
        if key.startswith(SECRET_PREFIX):
            return await self._secret(key)
        if self.required:
            raise _refused("unknown" if key else "missing")
        return EVERYTHING

    async def open_grant(self, headers: Iterable[tuple[bytes, bytes]]) -> Grant:
        """What a request for an open path may see beyond what everybody may: nothing without a key that holds."""
        try:
            return await self.grant(headers) if presented_key(headers) or not self.required else NOTHING
        except UnauthorizedError:
            return NOTHING

    async def _secret(self, key: str) -> Grant:
        digest = secret_digest(key[:MAX_SECRET])
        stored = await self._find(digest)
        if stored is None or not hmac.compare_digest(stored.digest, digest):
            raise _refused("unknown")
        self._check_alive(stored)
        bound = stored.key
        return Grant(frozenset(bound.scopes), bound.channel, bound.trajectory_id, bound.key_id, stored.digest)

    async def _session(self, session: SessionKey) -> Grant:
        stored = await self._find(session.key_id) if session.key_id is not None else None
        if stored is None or not session.is_signed_with(stored.digest):
            raise _refused("unknown")
        self._check_alive(stored)
        if session.expires_at <= self._clock():
            raise _refused("expired", stored.key.key_id)
        # It can do no more than the key that made it.
        if stored.key.trajectory_id not in (None, session.trajectory_id) or not _can(stored, "write"):
            raise _refused("unknown", stored.key.key_id)
        return Grant(frozenset(("write",)), stored.key.channel, session.trajectory_id, stored.key.key_id)

    def _check_alive(self, stored: StoredKey) -> None:
        if not stored.key.lives(self._clock()):
            reason = "expired" if stored.key.revoked_at is None else "revoked"
            raise _refused(reason, stored.key.key_id)

    async def _find(self, wanted: bytes | str) -> StoredKey | None:
        """The key with this digest or id, `CACHE_SECONDS` old at most; one look at the pool serves all who wait."""
        now = self._ticks()
        known = self._known.get(wanted)
        if known is None or now - known[1] >= CACHE_SECONDS or _has_failed(known[0]):
            known = self._known[wanted] = (asyncio.create_task(asyncio.to_thread(self._look, wanted)), now)
            self._known.move_to_end(wanted)
            while len(self._known) > CACHED:
                self._known.popitem(last=False)
        return await asyncio.shield(known[0])

    def _look(self, wanted: bytes | str) -> StoredKey | None:
        return self._pool.find_key(wanted) if isinstance(wanted, bytes) else self._pool.get_key(wanted)


async def check_group(pool: Pool, grant: Grant, group_id: str | None) -> None:
    """ForbiddenError where a call names a group of another channel than its key is for."""
    if grant.channel is None or group_id is None:
        return
    try:
        group = await asyncio.to_thread(pool.get_group, group_id)
    except NotFoundError:
        return
    grant.check_channel(group.channel, f"the group {group_id!r}")


def check_scopes(grant: Grant, needed: Iterable[Scope], what: str) -> None:
    """ForbiddenError where none of the scopes is granted; `what` needs one."""
    if not grant.allows(needed):
        metrics.KEY_FAILURES.labels("scope").inc()
        log.warning("key_refused", reason="scope", key=grant.key_id, what=what[:200])
        wanted = " or ".join(needed)
        raise ForbiddenError(f"this key lacks the scope {wanted}, which {what[:200]} needs", hint="Use another key")


def check_granted(grant: Grant) -> None:
    """ForbiddenError where nothing is granted, so that an application that no check of keys stands before is closed."""
    if not grant.scopes:
        raise ForbiddenError(
            "nothing was granted to this request: no check of keys stands before this application",
            hint="Serve it with agentworld.api.app.create_app, which checks keys",
        )


def _has_failed(task: asyncio.Task[StoredKey | None]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def _can(stored: StoredKey, scope: Scope) -> bool:
    return scope in stored.key.scopes or "admin" in stored.key.scopes


def _refused(reason: str, key_id: str | None = None) -> AgentWorldError:
    """The error for a key that does not hold, counted and logged without it."""
    metrics.KEY_FAILURES.labels(reason).inc()
    log.warning("key_refused", reason=reason, key=key_id)
    said = {
        "missing": "this server needs an API key",
        "unknown": "this API key is not known here",
        "expired": "this API key has expired",
        "revoked": "this API key was revoked",
    }
    return UnauthorizedError(
        said[reason],
        path="authorization",
        hint="Send it as `Authorization: Bearer KEY` or `x-api-key: KEY`; `agentworld keys create` makes one",
    )
