"""Logs of SQLite whose database is not at its place: moved away, removed, or not yet put back.

SQLite would play such a log into whatever file comes to lie beside it, which damages it, or drop it beside an empty
one, with the last commits of the pool that it belongs to.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from agentworld.errors import PoolError

WRITE_AHEAD = "-wal"
ROLLBACK = "-journal"


def refuse_stray_logs(path: Path, kinds: Iterable[str] = (WRITE_AHEAD, ROLLBACK)) -> None:
    """PoolError where a log that holds anything lies beside `path`, at which no database is or an empty file."""
    for kind in kinds:
        log = path.with_name(path.name + kind)
        try:
            held = log.stat().st_size
        except FileNotFoundError:
            continue
        if held:
            raise PoolError(
                f"{log} is the log of a pool that is not there any more, and may hold its last commits",
                hint=f"Put that pool's file back as {path.name}; or remove the log, or name another path",
            )
