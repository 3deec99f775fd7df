"""The baseline: what a plain logger keeps, one row a step with the whole sequence and all messages."""

from __future__ import annotations

import abc
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from agentworld.records import Step

_COLUMNS = "step_id TEXT PRIMARY KEY, trajectory_id TEXT, split INTEGER, ids {blob}, logprobs {blob}, messages TEXT"
_INSERT = "INSERT INTO flat VALUES ({marks})"


class FlatTable(abc.ABC):
    """Rows of steps in one table; ids as uint32, log-probabilities as float32, messages as JSON text."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def append(self, steps: Sequence[Step]) -> None:
        """Write the steps in one durable transaction; callers of several threads take turns."""
        rows = [flat_row(step) for step in steps]
        with self._lock:
            self._write(rows)

    @abc.abstractmethod
    def _write(self, rows: Sequence[tuple[Any, ...]]) -> None: ...

    @abc.abstractmethod
    def read_ids(self) -> int:
        """Read every sequence as an array; returns the number of ids."""

    @abc.abstractmethod
    def size(self) -> int:
        """Bytes of the table."""

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of the connection."""


class SqliteFlat(FlatTable):
    """The table in a SQLite file, with the same journal and `synchronous=FULL`."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute(f"CREATE TABLE flat ({_COLUMNS.format(blob='BLOB')})")

    def _write(self, rows: Sequence[tuple[Any, ...]]) -> None:
        self._connection.execute("BEGIN")
        self._connection.executemany(_INSERT.format(marks="?, ?, ?, ?, ?, ?"), rows)
        self._connection.execute("COMMIT")

    def read_ids(self) -> int:
        """See FlatTable."""
        found = self._connection.execute("SELECT ids FROM flat ORDER BY rowid")
        return sum(len(np.frombuffer(row[0], dtype="<u4")) for row in found)

    def size(self) -> int:
        """See FlatTable; the main file after a checkpoint."""
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return self._path.stat().st_size

    def close(self) -> None:
        """See FlatTable."""
        self._connection.close()


class PostgresFlat(FlatTable):
    """The table in a schema of a PostgreSQL database."""

    def __init__(self, url: str) -> None:
        super().__init__()
        from agentworld.bench.schemas import connected

        self._connection = connected(url)
        self._connection.execute(f"CREATE TABLE flat ({_COLUMNS.format(blob='BYTEA')})".encode())
        self._connection.execute("ALTER TABLE flat ALTER COLUMN ids SET STORAGE EXTERNAL")
        self._connection.execute("ALTER TABLE flat ALTER COLUMN logprobs SET STORAGE EXTERNAL")

    def _write(self, rows: Sequence[tuple[Any, ...]]) -> None:
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.executemany(_INSERT.format(marks="%s, %s, %s, %s, %s, %s").encode(), rows)

    def read_ids(self) -> int:
        """See FlatTable."""
        with self._connection.cursor(binary=True) as cursor:
            found = cursor.execute("SELECT ids FROM flat")
            return sum(len(np.frombuffer(row[0], dtype="<u4")) for row in found)

    def size(self) -> int:
        """See FlatTable; with indexes and what lies out of line."""
        row = self._connection.execute("SELECT pg_total_relation_size('flat')").fetchone()
        return int(row[0]) if row else 0

    def close(self) -> None:
        """See FlatTable."""
        self._connection.close()


def flat_row(step: Step) -> tuple[Any, ...]:
    """The columns of one row."""
    parts = [np.asarray(ids, dtype="<u4") for ids in (step.prompt_ids, step.response_ids) if ids is not None]
    logprobs = None if step.response_logprobs is None else np.asarray(step.response_logprobs, dtype="<f4").tobytes()
    messages = None
    split = 0 if step.prompt_ids is None else len(step.prompt_ids)
    if step.prompt_messages is not None:
        messages = msgspec.json.encode([*step.prompt_messages, step.response_message]).decode()
    ids = b"".join(part.tobytes() for part in parts)
    return (step.step_id, step.trajectory_id, split, ids, logprobs, messages)
