"""Keeping a pool on PostgreSQL: what was deleted purged, the pool backed up into an archive and restored from one."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from psycopg import errors
from sqlalchemy import Float, LargeBinary, Table, Text

from agentworld.errors import ConfigError, PoolError
from agentworld.pool.keeping.records import Progress, no_progress
from agentworld.pool.partial import partial_file
from agentworld.pool.postgres.connection import PostgresConnection
from agentworld.pool.postgres.database import PostgresDatabase
from agentworld.pool.schema import SCHEMA_VERSION
from agentworld.pool.sql.store_keeping import KeepingMethods
from agentworld.pool.sql.transfer import (
    TABLES,
    ArchiveWriter,
    archive_version,
    bring_in_blobs,
    check_free,
    count_of,
    finish,
    names_of,
    open_archive,
    rows_of,
)

LOCK_SECONDS = 2.0  # that a purge keeps others waiting for a table which it does not get, and then leaves it to them
LOCK_TURNS = 5
COPIED_ROWS = 2_000  # of one statement, whose rows the server keeps once more until it has looked after references
_KINDS: tuple[tuple[type[Any], str], ...] = ((Text, "text"), (LargeBinary, "bytea"), (Float, "float8"))


class PostgresKeeping(KeepingMethods):
    """What the engine adds to keeping."""

    _database: PostgresDatabase

    def purge(self, *, progress: Progress = no_progress) -> None:
        """See Pool. Rewrites each table under a lock of its own, then asks the server for a checkpoint.

        What the server's log and its copies elsewhere (archived log, standbys) hold is the operator's: docs/pool.md.
        """
        self._check_media()
        self._finish_deletions(progress)
        with self._connected() as connection:
            connection.command(f"SET lock_timeout = '{LOCK_SECONDS}s'")
            for number, table in enumerate(TABLES):
                progress("rewrite", number, len(TABLES))
                self._rewrite(connection, table)
            progress("rewrite", len(TABLES), len(TABLES))
            try:
                # Two, as the log of before the first is let go of at the second.
                for _ in range(2):
                    connection.command("SELECT pg_switch_wal()")
                    connection.command("CHECKPOINT")
            except errors.InsufficientPrivilege:
                raise PoolError(
                    "the tables are rewritten; the server's log still holds what was deleted, and this user may not "
                    "ask for a checkpoint",
                    hint="Let an administrator run SELECT pg_switch_wal(); CHECKPOINT; twice",
                ) from None

    def _rewrite(self, connection: PostgresConnection, table: Table) -> None:
        """While it waits for its lock, whatever else asks for the table waits too; so it waits a little, some times."""
        for turn in range(LOCK_TURNS):
            try:
                connection.command(f'VACUUM (FULL) "{self._database.schema}"."{table.name}"')
                return
            except errors.LockNotAvailable:
                if turn + 1 < LOCK_TURNS:
                    time.sleep(LOCK_SECONDS)
        raise PoolError(
            f"{table.name} cannot be rewritten, since a transaction that reads it does not end; what was deleted is "
            "still in the pool's files",
            hint="End it (SELECT pid, state, query FROM pg_stat_activity shows it), and purge again",
        )

    def backup(self, path: Path, *, progress: Progress = no_progress) -> None:
        """See Pool."""
        path = Path(path)
        check_free(path)
        with partial_file(path) as partial:
            archive = ArchiveWriter(partial)
            try:
                with self._connected() as connection:
                    begin = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY{self._database.search_path}"
                    flushing = self._database.flushing
                    unsafe = connection.command(begin, flushing.ask).fetchall()[0][0]
                    for table in TABLES:
                        total = connection.command(f'SELECT count(*) FROM "{table.name}"').fetchall()[0][0]
                        archive.add(table, _read(connection, table), progress, total)
                    connection.command("COMMIT", *flushing.after_read(unsafe))
            except BaseException:
                archive.abandon()
                raise
            archive.close()
            bring_in_blobs(partial, self._read_blob, progress)
            finish(partial, path)

    def fill(self, path: Path, *, progress: Progress = no_progress) -> None:
        """Put all rows of an archive into this pool in one transaction; ConfigError where it is not empty."""
        with closing(open_archive(path)) as archive:
            if archive_version(archive) != SCHEMA_VERSION:
                raise ConfigError(
                    f"{path} has schema {archive_version(archive)}, this version needs {SCHEMA_VERSION}",
                    path="path",
                    hint=f"Bring a copy of it up to date first: `agentworld pool migrate --pool sqlite:///{path}`",
                )
            with self._connected() as connection:
                connection.command(
                    f"BEGIN{self._database.search_path}; SELECT pg_advisory_xact_lock({self._database.key})"
                )
                for table in TABLES:
                    if (
                        table.name != "counters"
                        and connection.command(f'SELECT 1 FROM "{table.name}" LIMIT 1').fetchall()
                    ):
                        raise ConfigError(
                            f"the pool {self.url} is not empty: {table.name} has rows",
                            path="pool",
                            hint="Restore into a new database, or a new schema with ?schema=NAME",
                        )
                connection.command("DELETE FROM counters")
                for table in TABLES:
                    _write(connection, table, rows_of(archive, table), progress, count_of(archive, table))
                connection.command("COMMIT")

    @contextmanager
    def _connected(self) -> Iterator[PostgresConnection]:
        """A connection of its own, so that long work is in nobody's way."""
        connection = self._database.connect()
        try:
            with self._database.translated():
                yield connection
        finally:
            connection.raw.close()


def _read(connection: PostgresConnection, table: Table) -> Iterator[tuple[Any, ...]]:
    names = ", ".join(f'"{name}"' for name in names_of(table))
    keys = ", ".join(f'"{column.name}"' for column in table.primary_key.columns)
    statement = f'COPY (SELECT {names} FROM "{table.name}" ORDER BY {keys}) TO STDOUT (FORMAT BINARY)'
    with connection.raw.cursor().copy(statement) as copy:
        copy.set_types(_types(table))
        yield from copy.rows()


def _write(
    connection: PostgresConnection,
    table: Table,
    rows: Iterator[tuple[Any, ...]],
    progress: Progress,
    total: int,
) -> None:
    names = ", ".join(f'"{name}"' for name in names_of(table))
    done = 0
    for first in rows:
        with connection.raw.cursor().copy(f'COPY "{table.name}" ({names}) FROM STDIN (FORMAT BINARY)') as copy:
            copy.set_types(_types(table))
            copy.write_row(first)
            for row in itertools.islice(rows, COPIED_ROWS - 1):
                copy.write_row(row)
        done = min(done + COPIED_ROWS, total)
        progress(table.name, done, total)
    progress(table.name, total, total)


def _types(table: Table) -> list[str]:
    return [next((name for kind, name in _KINDS if isinstance(column.type, kind)), "int8") for column in table.columns]
