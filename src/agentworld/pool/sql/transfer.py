"""Moving a whole pool: an archive is a SQLite pool file, whatever engine it was taken from and is restored to.

So an archive can be opened, listed and checked as any pool, and a pool moves from one engine to the other. Rows go as
they are, primary keys, counters and leases too.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Table

from agentworld.errors import ConfigError, NotFoundError, PoolError
from agentworld.pool import schema
from agentworld.pool.keeping.records import Progress
from agentworld.pool.media import media_digest
from agentworld.pool.partial import is_full, no_room, writing
from agentworld.pool.stray_logs import refuse_stray_logs
from agentworld.syncing import sync

ROWS_AT_ONCE = 500
PAGES_AT_ONCE = 1_000
TABLES: tuple[Table, ...] = tuple(schema.metadata.sorted_tables)
# Reads a blob that lies outside of the pool.
ReadBlob = Callable[[bytes], bytes]


def check_free(path: Path) -> None:
    """ConfigError where something is at the path, or its folder is missing: an archive overwrites nothing. PoolError
    where a log lies there, which would be taken for that of the archive.
    """
    with writing(path):
        if os.path.lexists(path):
            raise ConfigError(
                f"{path} is there already", path="path", hint="Name a file that is not there, or move it away"
            )
        if not os.path.isdir(path.absolute().parent):
            raise ConfigError(f"the folder {path.absolute().parent} does not exist", path="path", hint="Create it")
        refuse_stray_logs(path)


def copy_pages(source: sqlite3.Connection, target: sqlite3.Connection, path: Path, progress: Progress) -> None:
    """All of a database; `path` is what `target` becomes. SQLite tells faults of both alike, but only what is written
    can fill a disk.
    """
    try:
        source.backup(
            target,
            pages=PAGES_AT_ONCE,
            progress=lambda _, left, total: progress("pages", total - left, total),
            sleep=0,
        )
    except sqlite3.Error as error:
        if is_full(error):
            raise no_room(path) from error
        raise


def finish(partial: Path, path: Path) -> None:
    """Make the archive durable, and only then give it its name."""
    sync(partial)
    check_free(path)
    os.rename(partial, path)
    sync(path.absolute().parent)


def open_archive(path: Path) -> sqlite3.Connection:
    """An archive for reading; NotFoundError or ConfigError where there is none."""
    if not path.is_file():
        raise NotFoundError(f"there is no archive at {path}", path="path")
    log = path.with_name(path.name + "-wal")
    query = "mode=ro" if log.exists() and log.stat().st_size else "mode=ro&immutable=1"
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?{query}", uri=True, isolation_level=None)
    try:
        found = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        connection.execute("SELECT count(*) FROM counters").fetchone()
    except sqlite3.DatabaseError as error:
        connection.close()
        raise ConfigError(
            f"{path} is no archive of a pool: {error}", path="path", hint="Name a file that `pool backup` wrote"
        ) from None
    if found is None or found[0] > schema.SCHEMA_VERSION:
        connection.close()
        raise PoolError(
            f"{path} has schema {found and found[0]}, this version knows up to {schema.SCHEMA_VERSION}",
            hint="Upgrade AgentWorld",
        )
    return connection


def archive_version(connection: sqlite3.Connection) -> str:
    """The schema version of an archive."""
    return str(connection.execute("SELECT version_num FROM alembic_version").fetchone()[0])


def names_of(table: Table) -> list[str]:
    """Columns in order."""
    return [column.name for column in table.columns]


def rows_of(connection: sqlite3.Connection, table: Table) -> Iterator[tuple[Any, ...]]:
    """The rows of a table of an archive, parents before children."""
    names = ", ".join(f'"{name}"' for name in names_of(table))
    keys = ", ".join(f'"{column.name}"' for column in table.primary_key.columns)
    cursor = connection.cursor()
    cursor.row_factory = None
    yield from cursor.execute(f'SELECT {names} FROM "{table.name}" ORDER BY {keys}')


def count_of(connection: sqlite3.Connection, table: Table) -> int:
    """How many rows a table of an archive has."""
    return int(connection.execute(f'SELECT count(*) FROM "{table.name}"').fetchone()[0])


class ArchiveWriter:
    """Fills a new archive, table by table."""

    def __init__(self, partial: Path) -> None:
        from agentworld.pool.migrations import upgrade

        upgrade(partial)
        self._connection = sqlite3.connect(partial, isolation_level=None)
        # Nobody reads it before it is whole, and then it is synced once.
        self._connection.execute("PRAGMA journal_mode = OFF")
        self._connection.execute("PRAGMA synchronous = OFF")
        self._connection.execute("BEGIN")
        self._connection.execute("DELETE FROM counters")

    def add(self, table: Table, rows: Iterable[tuple[Any, ...]], progress: Progress, total: int) -> None:
        """All rows of a table."""
        names = names_of(table)
        marks = ", ".join("?" * len(names))
        quoted = ", ".join(f'"{name}"' for name in names)
        statement = f'INSERT INTO "{table.name}" ({quoted}) VALUES ({marks})'
        held: list[tuple[Any, ...]] = []
        done = 0
        for row in rows:
            held.append(row)
            if len(held) >= ROWS_AT_ONCE:
                self._connection.executemany(statement, held)
                done += len(held)
                held.clear()
                progress(table.name, done, total)
        self._connection.executemany(statement, held)
        progress(table.name, done + len(held), total)

    def close(self) -> None:
        """Commit, as a file that opens as a pool."""
        self._connection.execute("COMMIT")
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.close()

    def abandon(self) -> None:
        """Let go of it."""
        self._connection.close()


def bring_in_blobs(partial: Path, read: ReadBlob, progress: Progress) -> None:
    """Put the blobs of the media folder into the archive, so that it is whole by itself; one in memory at a time."""
    connection = sqlite3.connect(partial, isolation_level=None)
    try:
        outside = [row[0] for row in connection.execute("SELECT digest FROM media WHERE data IS NULL ORDER BY pk")]
        for number, digest in enumerate(outside):
            data = read(digest)
            if media_digest(data) != digest:
                raise PoolError(f"the medium {digest.hex()} is damaged", hint="Run `agentworld pool check`")
            connection.execute("UPDATE media SET data = ? WHERE digest = ?", (data, digest))
            progress("media", number + 1, len(outside))
    finally:
        connection.close()
