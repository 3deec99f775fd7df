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
from typing import Any, TypeVar

import msgspec
import structlog

from agentworld.errors import AgentWorldError, ForbiddenError, NotFoundError, UnauthorizedError
from agentworld.gateway import metrics
from agentworld.gateway.browser_sessions import BrowserSession, read_browser_sessions
from agentworld.gateway.keys import PAGE_PREFIX, PREFIX, SessionKey, read_session_key
from agentworld.pool.keys import SECRET_PREFIX, Scope, StoredKey, secret_digest
from agentworld.pool.protocol import Pool
from agentworld.records import Step, Trajectory

log = structlog.get_logger("agentworld.access")
V = TypeVar("V")
CACHE_SECONDS = 2.0
"""So long a key may go on after it was revoked, and one that another process made may be unknown."""
CACHED = 10_000
"""So many keys are remembered, and so many that are none."""
LOOKS = 4
"""So many looks at the pool at once for keys that were not known, as anybody can send some."""
MAX_SECRET = 1024
GRANT = "agentworld.grant"
"""Where a request's grant stands in its ASGI scope."""
_OF_KEYS = frozenset((b"authorization", b"x-api-key"))
_OWN_PREFIXES = (SECRET_PREFIX, PREFIX, PAGE_PREFIX)


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

    @property
    def of_agent(self) -> bool:
        """Whether it is a session key's, which an agent has for its own trajectory."""
        return self.key_id is not None and self.secret is None

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
        if lower not in _OF_KEYS:
            continue
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
        # Apart, so that no flood of keys that are none drives out those that hold.
        self._known: OrderedDict[bytes | str, tuple[StoredKey, float]] = OrderedDict()
        self._unknown: OrderedDict[bytes | str, float] = OrderedDict()
        self._looking: dict[bytes | str, asyncio.Task[StoredKey | None]] = {}
        self._turns = asyncio.Semaphore(LOOKS)
        self._made = 0

    async def grant(self, headers: Iterable[tuple[bytes, bytes]], *, browser: bool = False) -> Grant:
        """What the key in the headers grants; UnauthorizedError where it is none that holds, or is missing. `browser`:
        without a key the cookie of a sign-in counts, where keys are required: elsewhere it could only take rights away.
        """
        headers = list(headers)
        key = presented_key(headers)
        if not self.required and not key.startswith(_OWN_PREFIXES):
            return EVERYTHING
        if browser and self.required and not key and (signed_in := await self.sessions(headers)):
            return self._browser(signed_in)
        session = read_session_key(key)
        if session is not None and (session.key_id is not None or self.required):
            return await self._session(session)
        if key.startswith(SECRET_PREFIX):
            return await self._secret(key)
        if self.required:
            raise _refused("unknown" if key else "missing")
        return EVERYTHING

    async def open_grant(self, headers: Iterable[tuple[bytes, bytes]], *, browser: bool = False) -> Grant:
        """What a request for an open path may see beyond what everybody may: nothing without a key that holds."""
        try:
            headers = list(headers)
            shows = presented_key(headers) or (browser and read_browser_sessions(headers))
            return await self.grant(headers, browser=browser) if shows or not self.required else NOTHING
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

    async def sessions(self, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[BrowserSession, StoredKey]]:
        """The sign-ins of the cookies in the headers that keys of this pool signed, held or not, with those keys, the
        latest first. Those of other servers on the host are passed over, as cookies know no ports.
        """
        found = []
        for session in read_browser_sessions(headers):
            stored = await self._find(session.key_id)
            if stored is not None and session.is_signed_with(stored.digest):
                found.append((session, stored))
        return found

    def _browser(self, signed_in: list[tuple[BrowserSession, StoredKey]]) -> Grant:
        """What the latest sign-in that holds grants; where none does, the error of the latest."""
        now = self._clock()
        session, stored = next(
            ((one, by) for one, by in signed_in if one.expires_at > now and by.key.lives(now)), signed_in[0]
        )
        self._check_alive(stored)
        if session.expires_at <= now:
            raise _refused("expired", stored.key.key_id)
        key = stored.key
        return Grant(frozenset(key.scopes), key.channel, key.trajectory_id, key.key_id, stored.digest)

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
        scopes: tuple[Scope, ...] = ("feedback",) if session.page else ("write",)
        return Grant(frozenset(scopes), stored.key.channel, session.trajectory_id, stored.key.key_id)

    def _check_alive(self, stored: StoredKey) -> None:
        if not stored.key.lives(self._clock()):
            reason = "expired" if stored.key.revoked_at is None else "revoked"
            raise _refused(reason, stored.key.key_id)

    async def _find(self, wanted: bytes | str) -> StoredKey | None:
        """The key with this digest or id, `CACHE_SECONDS` old at most; one look at the pool serves all who wait."""
        now = self._ticks()
        known = self._known.get(wanted)
        if known is not None and now - known[1] < CACHE_SECONDS:
            return known[0]
        if now - self._unknown.get(wanted, float("-inf")) < CACHE_SECONDS:
            return None
        looking = self._looking.get(wanted)
        if looking is None:
            looking = self._looking[wanted] = asyncio.create_task(self._look_up(wanted, now))
            looking.add_done_callback(lambda done: done.cancelled() or done.exception())  # Who waited is told.
        return await asyncio.shield(looking)

    async def _look_up(self, wanted: bytes | str, now: float) -> StoredKey | None:
        made = self._made
        try:
            if wanted in self._known:
                found = await asyncio.to_thread(self._look, wanted)
            else:
                async with self._turns:
                    found = await asyncio.to_thread(self._look, wanted)
        finally:
            del self._looking[wanted]
        if found is not None:
            self._unknown.pop(wanted, None)
            _keep(self._known, wanted, (found, now))
        else:
            self._known.pop(wanted, None)
            if made == self._made:
                _keep(self._unknown, wanted, now)
        return found

    def forget_unknown(self) -> None:
        """A key was made here, so one that was not known may be now. Call from any thread."""
        self._made += 1
        self._unknown = OrderedDict()

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
    if "admin" not in grant.scopes and not grant.allows(needed):
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


def _keep(cache: OrderedDict[bytes | str, V], wanted: bytes | str, value: V) -> None:
    cache[wanted] = value
    cache.move_to_end(wanted)
    while len(cache) > CACHED:
        cache.popitem(last=False)


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
