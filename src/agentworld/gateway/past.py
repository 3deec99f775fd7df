"""Stored replies that a call of the Responses API refers to, read back from the pool: in any process, also after a
restart."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from agentworld.capture.call import first_step_id
from agentworld.dialects.responses import NOTES, Past, response_exchange
from agentworld.dialects.responses_stored import stored_runs
from agentworld.errors import NotFoundError
from agentworld.gateway.access import Grant
from agentworld.gateway.identity import Identity
from agentworld.gateway.large import weight
from agentworld.pool.protocol import Pool


async def load_past(pool: Pool, exchange_ids: Sequence[str], grant: Grant) -> dict[str, Past]:
    """The replies of these exchanges, as far as they are there, ended by themselves and are the caller's to see."""
    return await asyncio.to_thread(_load, pool, exchange_ids, grant) if exchange_ids else {}


def _load(pool: Pool, exchange_ids: Sequence[str], grant: Grant) -> dict[str, Past]:
    found: dict[str, Past] = {}
    for exchange_id in exchange_ids:
        try:
            step = pool.get_step(first_step_id(exchange_id), include=("messages",))
        except NotFoundError:
            continue
        if step.response_message is None or step.finish_reason == "abort" or not grant.covers(step):
            continue
        notes: dict[str, Any] = step.metadata.get(NOTES) or {}
        found[exchange_id] = Past(
            exchange_id=exchange_id,
            messages=tuple(step.prompt_messages or ()),
            reply=step.response_message,
            instructions=int(notes.get("instructions") or 0),
            named=notes.get("named") or {},
            trajectory_id=step.trajectory_id,
            runs=stored_runs(step),
            size=weight([*(step.prompt_messages or ()), step.response_message]),
        )
    return found


def size_of(past: dict[str, Past]) -> int:
    """About how many bytes there are to look at because of what a call refers to."""
    return sum(known.size for known in past.values())


async def joined(pool: Pool, identity: Identity, body: dict[str, Any], past: dict[str, Past]) -> Identity:
    """The identity of a call that names no trajectory: that of the response that it goes on from, while it is open."""
    previous = body.get("previous_response_id")
    exchange_id = response_exchange(previous) if isinstance(previous, str) else None
    known = past.get(exchange_id) if exchange_id is not None else None
    if identity.trajectory_id is not None or known is None:
        return identity
    trajectory = await asyncio.to_thread(pool.get_trajectory, known.trajectory_id)
    if trajectory.status != "open":
        return identity
    return msgspec.structs.replace(identity, trajectory_id=known.trajectory_id)
