"""New SQLite pools as copies of one, since making one costs a test more than most of what it does with it."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path


class Copies:
    """In place of `upgrade`: an empty file is filled from what that made of the first empty file."""

    def __init__(self, upgrade: Callable[[Path], None]) -> None:
        self._upgrade = upgrade
        self._guard = threading.Lock()
        self._first: sqlite3.Connection | None = None

    def __call__(self, path: Path) -> None:
        """Bring the file to the newest schema."""
        with self._guard, contextlib.closing(sqlite3.connect(path)) as file:
            if file.execute("SELECT count(*) FROM sqlite_master").fetchone() != (0,):
                self._upgrade(path)
            elif self._first is None:
                self._upgrade(path)
                self._first = sqlite3.connect(":memory:", check_same_thread=False)
                file.backup(self._first)
            else:
                self._first.backup(file)
