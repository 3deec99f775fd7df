"""Schema migrations, run by Alembic from inside the package."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, event
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
            config = _config()
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    finally:
        engine.dispose()


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")
