"""A pool from an archive that `Pool.backup` wrote, on either engine."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from agentworld.errors import ConfigError
from agentworld.pool.keeping.records import Progress, no_progress
from agentworld.pool.media.address import split_media
from agentworld.pool.partial import partial_file
from agentworld.pool.urls import shown_url


def restore(archive: Path, url: str, *, progress: Progress = no_progress) -> None:
    """Make the pool at `url` from an archive; ConfigError where something is there already.

    On SQLite the file must not be there, on PostgreSQL the pool must be empty. Media come into the pool's own table.
    """
    from agentworld.pool.sql.transfer import check_free, copy_pages, finish, open_archive

    archive = Path(archive)
    url, _ = split_media(url)
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        path = Path(rest[1:])
        check_free(path)
        with partial_file(path) as partial:
            with closing(open_archive(archive)) as source, closing(sqlite3.connect(partial)) as target:
                source.execute("BEGIN")
                source.execute("SELECT count(*) FROM counters").fetchone()
                try:
                    copy_pages(source, target, path, progress)
                except sqlite3.Error as error:
                    raise ConfigError(
                        f"{archive} cannot be restored: {error}", path="path", hint="Try another backup"
                    ) from error
            finish(partial, path)
        return
    if scheme.startswith("postgresql"):
        from agentworld.pool.postgres import PostgresPool

        with closing(open_archive(archive)):
            pass  # What is no archive is refused before anything is made.
        pool = PostgresPool(url)
        try:
            pool.fill(archive, progress=progress)
        finally:
            pool.close()
        return
    raise ConfigError(
        f"no pool can be restored to {shown_url(url)!r}", path="pool", hint="Use sqlite:///FILE or postgresql://..."
    )
