"""Keeping an SQLite pool: its pages checked, what was deleted purged, the file backed up."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from agentworld.errors import PoolError
from agentworld.pool.keeping.records import Problem, Progress, no_progress
from agentworld.pool.partial import partial_file
from agentworld.pool.sql.store_keeping import KeepingMethods
from agentworld.pool.sql.transfer import bring_in_blobs, check_free, copy_pages, finish
from agentworld.pool.sqlite.database import SqliteDatabase, translated
from agentworld.pool.sqlite.lock import FileLock
from agentworld.pool.sqlite.readonly import ReadOnlyDatabase

_NAMED = 20  # damages that SQLite is asked to name


class SqliteKeeping(KeepingMethods):
    """What the engine adds to keeping."""

    _database: SqliteDatabase | ReadOnlyDatabase

    def purge(self, *, progress: Progress = no_progress) -> None:
        """See Pool. Needs as much room again as the pool has, and waits for reads that are under way."""
        database = self._database
        if isinstance(database, ReadOnlyDatabase):
            database.open_writer().transaction()  # Raises what to do.
            return
        self._check_media()
        self._finish_deletions(progress)
        progress("rewrite", 0, 2)
        # A lock of its own: that of the database belongs to the writing thread.
        lock = FileLock(database.lock.path)
        try:
            with translated(database.path), lock, closing(database.connect()) as connection:
                connection.execute("VACUUM")
                progress("rewrite", 1, 2)
                busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        finally:
            lock.close()
        if busy:
            raise PoolError(
                f"the log of {database.path} still holds what was deleted, since it is being read",
                hint="End long reads and backups of the pool, and purge again",
            )
        progress("rewrite", 2, 2)

    def backup(self, path: Path, *, progress: Progress = no_progress) -> None:
        """See Pool."""
        path = Path(path)
        check_free(path)
        with partial_file(path) as partial:
            with (
                translated(self._database.path),
                self._snapshot() as source,
                closing(sqlite3.connect(partial)) as target,
            ):
                copy_pages(source, target, path, progress)
            bring_in_blobs(partial, self._read_blob, progress)
            finish(partial, path)

    def _engine_problems(self, progress: Progress) -> list[Problem]:
        progress("file", 0, 1)
        with self._snapshot() as connection:
            said = [row[0] for row in connection.execute(f"PRAGMA integrity_check({_NAMED})")]
        progress("file", 1, 1)
        hint = "Restore the pool from a backup"
        return [Problem("engine", "file", str(self._database.path), text, hint) for text in said if text != "ok"]

    @contextmanager
    def _snapshot(self) -> Iterator[sqlite3.Connection]:
        """A connection that sees one state for as long as it is open."""
        with translated(self._database.path), self._database.reading() as reader:
            # The state is that of the first read.
            reader.raw.execute("SELECT count(*) FROM sqlite_master").fetchone()  # type: ignore[attr-defined]
            yield reader.raw  # type: ignore[attr-defined]  # Readers of this engine have one.
