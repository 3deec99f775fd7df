"""New SQLite pools as copies of one, since making one costs a test more than most of what it does with it."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from agentworld.pool.sqlite.database import PAGE_BYTES


class Copies:
    """In place of `upgrade`: the file of a new pool is filled from what that made of the first one's."""

    def __init__(self, upgrade: Callable[[Path], None]) -> None:
        self._upgrade = upgrade
        self._guard = threading.Lock()
        self._first: sqlite3.Connection | None = None

    def __call__(self, path: Path) -> None:
        """Bring the file to the newest schema."""
        with self._guard, contextlib.closing(sqlite3.connect(path)) as file:
            is_empty = file.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
            # Backups are made by `upgrade` too, and are no pools yet: their files are of another kind.
            made_as_pools_are = (_value(file, "journal_mode"), _value(file, "page_size")) == ("wal", PAGE_BYTES)
            if not is_empty or not made_as_pools_are:
                self._upgrade(path)
            elif self._first is None:
                self._upgrade(path)
                self._first = sqlite3.connect(":memory:", check_same_thread=False)
                file.backup(self._first)
            else:
                self._first.backup(file)


def _value(file: sqlite3.Connection, pragma: str) -> object:
    return file.execute(f"PRAGMA {pragma}").fetchone()[0]
