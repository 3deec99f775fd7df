"""Schema migrations, run by Alembic from inside the package."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, event, text
from sqlalchemy.pool import NullPool


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def known_versions() -> set[str]:
    """Every schema version that this package can bring up to date."""
    return {revision.revision for revision in ScriptDirectory.from_config(_config()).walk_revisions()}


def upgrade(path: Path) -> None:
    """Bring the SQLite file to the newest schema in one transaction; the caller holds the file lock."""
    engine = create_engine("sqlite://", creator=lambda: sqlite3.connect(path, isolation_level=None), poolclass=NullPool)
    # The driver begins no transaction before DDL by itself; without one, a crash would leave half a schema.
    event.listen(engine, "begin", _begin)
    try:
        with engine.begin() as connection:
            _upgrade(connection, None, "head")
    finally:
        engine.dispose()


def upgrade_schema(
    connect: Callable[[], Any], schema: str, key: int, is_old: Callable[[Any], bool], version: str = "head"
) -> None:
    """Bring a schema of a PostgreSQL database to the newest version in one transaction, one process at a time.

    `connect` gives a connection of psycopg; `key` is the pool's advisory lock, which writers hold too. `is_old` looks,
    once the lock is held, whether there is something to do, and raises where nothing may be done. A schema that is not
    there is made.
    """
    # What is committed while it waits for the lock must be seen, whatever the server's default is.
    engine = create_engine(
        "postgresql+psycopg://", creator=connect, poolclass=NullPool, isolation_level="READ COMMITTED"
    )
    try:
        with engine.begin() as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})
            if not is_old(connection.connection.driver_connection):
                return
            quoted = connection.dialect.identifier_preparer.quote_identifier(schema)
            if not connection.execute(text("SELECT to_regnamespace(:name)"), {"name": quoted}).scalar():
                connection.exec_driver_sql(f"CREATE SCHEMA {quoted}")
            connection.exec_driver_sql(f"SET LOCAL search_path TO {quoted}")
            _upgrade(connection, schema, version)
    finally:
        engine.dispose()


def _upgrade(connection: Connection, schema: str | None, version: str) -> None:
    config = _config()
    config.attributes.update(connection=connection, schema=schema)
    command.upgrade(config, version)


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")
