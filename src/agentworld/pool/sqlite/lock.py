"""The advisory lock beside the database file.

Every write transaction and every checkpoint of every process runs under it. SQLite's own busy wait is unfair to late
comers and, before SQLite 3.51.3, a checkpoint could race with a commit; one lock closes both. The kernel frees it
when its holder dies.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

from agentworld.errors import PoolError


class FileLock:
    """An exclusive lock on PATH, one holder among all processes and threads with their own FileLock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise PoolError(
                f"the lock file {path} cannot be opened: {error.strerror}", hint="Make its folder writable"
            ) from None

    def __enter__(self) -> FileLock:
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of the file; again is no error."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
