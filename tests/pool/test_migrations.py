"""Migrations lead to the schema that the code is written against."""

import sqlite3
import subprocess
import sys

import pytest
from alembic import op
from sqlalchemy import create_engine

from agentworld.pool import schema
from agentworld.pool.migrations import known_versions, upgrade
from agentworld.pool.sqlite import SqlitePool


def described(path):
    """Tables with their columns, keys and indexes."""
    with sqlite3.connect(path) as connection:
        connection.row_factory = lambda cursor, row: tuple(row)
        tables = [
            row[0]
            for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
            if row[0] not in ("alembic_version", "sqlite_sequence")
        ]
        result = {}
        for table in tables:
            sql = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
            indexes = {
                (unique, origin, tuple(column[2] for column in connection.execute(f"PRAGMA index_info('{name}')")))
                for _, name, unique, origin, _ in connection.execute(f"PRAGMA index_list('{table}')")
            }
            keys = {row[2:5] for row in connection.execute(f"PRAGMA foreign_key_list('{table}')")}
            columns = connection.execute(f"PRAGMA table_info('{table}')").fetchall()
            result[table] = (columns, indexes, keys, "AUTOINCREMENT" in sql)
        return result


def test_migrations_and_a_fresh_schema_are_the_same(tmp_path):
    upgrade(tmp_path / "migrated.db")
    engine = create_engine(f"sqlite:///{tmp_path / 'fresh.db'}")
    schema.metadata.create_all(engine)
    engine.dispose()
    migrated, fresh = described(tmp_path / "migrated.db"), described(tmp_path / "fresh.db")
    assert migrated.keys() == fresh.keys()
    for table in fresh:
        assert migrated[table] == fresh[table], table


def test_the_code_names_the_newest_migration(tmp_path):
    upgrade(tmp_path / "pool.db")
    with sqlite3.connect(tmp_path / "pool.db") as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchone()[0] == schema.SCHEMA_VERSION
    assert schema.SCHEMA_VERSION in known_versions()


def test_a_migration_that_breaks_off_leaves_nothing(tmp_path, monkeypatch):
    created = []
    original = op.create_table

    def breaking(name, *arguments, **options):
        created.append(name)
        if len(created) == 5:
            raise RuntimeError("power cut")
        return original(name, *arguments, **options)

    monkeypatch.setattr(op, "create_table", breaking)
    path = tmp_path / "pool.db"
    with pytest.raises(RuntimeError, match="power cut"):
        upgrade(path)
    monkeypatch.undo()
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    SqlitePool(path).close()


def test_an_open_pool_needs_no_alembic(tmp_path):
    SqlitePool(tmp_path / "pool.db").close()
    code = (
        "import sys; from agentworld.pool import open_store; "
        f"open_store('sqlite:///{tmp_path}/pool.db').close(); sys.exit('alembic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_the_journal_and_its_settings(sqlite_pool):
    connection = sqlite_pool._database.connect()
    read = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in SETTINGS}
    connection.close()
    assert read == SETTINGS


SETTINGS = {"journal_mode": "wal", "synchronous": 2, "wal_autocheckpoint": 0, "foreign_keys": 1}
