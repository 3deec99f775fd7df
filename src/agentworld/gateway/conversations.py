"""Which trajectory a call belongs to that names none: what this process knows, else what the pool has marked.

Memory is a cache. With several workers, or after a restart, the pool's marks tell where another process has served the
conversation so far, or the call that is asked again. Equal conversations of one caller are told apart as far as one
process serves them; over several, two continuations that come at the same moment may take the same one.
"""

from __future__ import annotations

import asyncio
import time

from agentworld.capture.marks import call_mark, path_mark
from agentworld.capture.sessions import Session, message_keys
from agentworld.gateway.identity import PrefixIndex
from agentworld.gateway.retries import FAILED_SECONDS, Retries, State
from agentworld.pool.call_marks import CallMark
from agentworld.pool.protocol import Pool
from agentworld.records import Message

_MOST_REPLIES = 64
"""So many of the latest replies of a conversation are looked for."""
_MOST_CALLS = 1000
"""Of a trajectory with more, those beyond are not looked at."""
_STATES: dict[str, State] = {"asked": "waiting", "failed": "failed", "answered": "answered"}


class Conversations:
    """Looks up trajectories for calls of one gateway."""

    def __init__(self, pool: Pool, prefixes: PrefixIndex, retries: Retries) -> None:
        self._pool = pool
        self._prefixes = prefixes
        self._retries = retries

    async def continued(self, key: bytes, before: tuple[Message, ...]) -> str | None:
        """The trajectory that holds the deepest of our replies in `before`, the messages ahead of the last.

        A path without a reply of ours leads nowhere, so a shared opening does not either.
        """
        replies = [place for place, message in enumerate(before) if message.role == "assistant"][-_MOST_REPLIES:]
        if not replies:
            return None
        keys = message_keys(before)
        paths = [keys[place] for place in reversed(replies)]
        if (found := self._prefixes.find(key, paths[:1])) is not None:
            return found
        path, rows = await asyncio.to_thread(self._deepest, key, paths)
        # Those that nobody has continued, the one that waits longest first; else the last.
        for row in [row for row in rows if row.latest] or rows[-1:]:
            self._prefixes.add(key, path, row.trajectory_id)
        return self._prefixes.find(key, paths)

    def _deepest(self, key: bytes, paths: list[bytes]) -> tuple[bytes, list[CallMark]]:
        """The deepest path that the pool knows and this process does not, and who holds it."""
        for path in paths:
            if self._prefixes.knows(key, path):
                break
            if rows := self._pool.find_marks([path_mark(key, path)]):
                return path, rows
        return b"", []

    async def asked_before(self, key: bytes, body_digest: str) -> str | None:
        """The trajectory that a retry of this call belongs to."""
        rows = await asyncio.to_thread(self._pool.find_marks, [call_mark(key, body_digest)])
        oldest = time.time() - FAILED_SECONDS
        elsewhere = [
            (row.trajectory_id, _STATES[row.said])
            for row in rows
            if row.said in _STATES and (row.said != "failed" or row.at >= oldest)
        ]
        return self._retries.find(key, body_digest, elsewhere)

    async def failed_elsewhere(self, session: Session, body_digest: str) -> bool:
        """Whether a call with this body failed in another process, and nobody has asked it again."""
        if session.trajectory is None or session.has_failed(body_digest):
            return False
        calls = await asyncio.to_thread(self._pool.list_exchanges, session.trajectory_id, limit=_MOST_CALLS)
        equal = [call for call in calls if call.body_digest == body_digest]
        return sum(call.error is not None for call in equal) > sum(call.retry_count > 0 for call in equal)
