"""Which trajectory a call belongs to that names none, as the pool's marks tell: whatever process has served the
conversation so far, or the call that is asked again, and also after a restart.
"""

from __future__ import annotations

import asyncio

from agentworld.capture.marks import call_mark, path_mark
from agentworld.capture.sessions import Session, message_keys
from agentworld.gateway.retries import FAILED_SECONDS, Retries, State
from agentworld.pool.protocol import Pool
from agentworld.records import Message

_MOST_REPLIES = 64
"""So many of the latest replies of a conversation are looked for."""
_MOST_CALLS = 1000
"""So many of a trajectory's latest calls are looked at: what is asked again came lately."""
_STATES: dict[str, State] = {"asked": "waiting", "failed": "failed", "answered": "answered"}


class Conversations:
    """Looks up trajectories for calls of one gateway."""

    def __init__(self, pool: Pool, retries: Retries) -> None:
        self._pool = pool
        self._retries = retries

    async def continued(self, key: bytes, before: tuple[Message, ...]) -> str | None:
        """The trajectory that holds the deepest of our replies in `before`, the messages ahead of the last.

        A path without a reply of ours leads nowhere, so a shared opening does not either.
        """
        replies = [place for place, message in enumerate(before) if message.role == "assistant"][-_MOST_REPLIES:]
        if not replies:
            return None
        return await asyncio.to_thread(self._take, key, before, replies)

    def _take(self, key: bytes, before: tuple[Message, ...], replies: list[int]) -> str | None:
        keys = message_keys(before)
        return self._pool.take_reply([path_mark(key, keys[place]) for place in reversed(replies)])

    async def asked_before(self, key: bytes, body_digest: str) -> str | None:
        """The trajectory that a retry of this call belongs to."""
        rows = await asyncio.to_thread(self._pool.find_marks, [call_mark(key, body_digest)])
        elsewhere = [
            (row.trajectory_id, _STATES[row.said])
            for row in rows
            if row.said in _STATES and (row.said != "failed" or row.age <= FAILED_SECONDS)
        ]
        return self._retries.find(key, body_digest, elsewhere)

    async def failed_elsewhere(self, session: Session, body_digest: str) -> bool:
        """Whether a call with this body failed in another process, and nobody has asked it again."""
        if session.trajectory is None or session.has_failed(body_digest):
            return False
        calls = await asyncio.to_thread(
            self._pool.list_exchanges, session.trajectory_id, order="newest", limit=_MOST_CALLS
        )
        equal = sorted((call for call in calls if call.body_digest == body_digest), key=lambda call: call.created_at)
        failed = 0
        for call in equal:  # A retry takes up a failure from before it, which may be of a call that is not looked at.
            failed += (call.error is not None) - (call.retry_count > 0 and failed > 0)
        return failed > 0
