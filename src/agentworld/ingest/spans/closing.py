"""Ends the trajectories of traces that are over."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from agentworld.errors import ConflictError, NotFoundError
from agentworld.ingest.spans import judging
from agentworld.ingest.spans.judging import SOURCE
from agentworld.ingest.spans.live import PREFIX, ROOT
from agentworld.ingest.spans.loose import number
from agentworld.pool.protocol import Pool
from agentworld.records import TerminalStatus, Trajectory

_PAGE = 100
_PER_ROUND = 5


class Looked(msgspec.Struct):
    """How far the open traces have been looked at: what comes after `cursor` is next, None is the first."""

    cursor: str | None = None


def close_silent(
    pool: Pool,
    quiet_seconds: float,
    idle_seconds: float,
    *,
    looked: Looked | None = None,
    now: Callable[[], float] = time.time,
) -> tuple[list[str], bool]:
    """End the trajectories whose trace is over: its root came and then nothing for `quiet_seconds`, or nothing came for
    `idle_seconds` (0: for ever). Any number of servers may do it at once. One round looks at some hundred traces;
    `looked` lets the next round go on behind them. Returns what was ended here, and whether others are open.
    """
    looked = looked or Looked()
    closed: list[str] = []
    others = looked.cursor is not None
    for _ in range(_PER_ROUND):
        cursor, looked.cursor = looked.cursor, None
        page = pool.list_trajectories(where=f"open and trajectory_id like '{PREFIX}%'", cursor=cursor, limit=_PAGE)
        looked.cursor = page.next_cursor
        for each in page.items:
            if each.metadata.get("source") != SOURCE:
                continue
            if (status := _over(pool, each, now(), quiet_seconds, idle_seconds)) is None:
                others = True
                continue
            try:
                judging.put_rest(pool, each)
                pool.complete_trajectory(each.trajectory_id, status)
                closed.append(each.trajectory_id)
            except (ConflictError, NotFoundError):
                continue  # It was ended or deleted since it was listed.
        if looked.cursor is None:
            break
    return closed, others or looked.cursor is not None


def _over(pool: Pool, trajectory: Trajectory, now: float, quiet: float, idle: float) -> TerminalStatus | None:
    """How the trajectory ended; None where it has not."""
    page = pool.list_steps(trajectory_id=trajectory.trajectory_id, order="newest", limit=1, include=("messages",))
    step = page.items[0] if page.items else None
    root: Any = trajectory.labels.get(ROOT)
    root = root if isinstance(root, dict) else None
    times = [trajectory.created_at, number(step.metadata.get("received_at")) if step is not None else None]
    times.append(number(root.get("received_at")) if root is not None else None)
    latest = max(each for each in times if each is not None)
    if root is not None and latest < now - quiet:
        return "failed" if root.get("status") == "error" else "finished"
    if idle > 0 and latest < now - idle:
        reply = step.response_message if step is not None else None
        answered = reply is not None and not reply.tool_calls
        return "finished" if answered else "abandoned"
    return None
