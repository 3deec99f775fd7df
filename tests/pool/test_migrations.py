"""Migrations lead to the schema that the code is written against."""

import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from alembic import op
from sqlalchemy import create_engine, inspect, text

from agentworld.pool import open_store, schema
from agentworld.pool.migrations import known_versions, upgrade, upgrade_schema
from agentworld.pool.sqlite import SqlitePool

from .samples import ids, step

HERE = Path(__file__).parent


@pytest.fixture
def database(postgres):
    """The URL of an empty database."""
    yield postgres.create_database("migrations")
    postgres.drop_database("migrations")


def described(path):
    """Tables with their columns, keys and indexes. AUTOINCREMENT of those that were made before schema 7 stays."""
    with sqlite3.connect(path) as connection:
        connection.row_factory = lambda cursor, row: tuple(row)
        tables = [
            row[0]
            for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
            if row[0] not in ("alembic_version", "sqlite_sequence")
        ]
        result = {}
        for table in tables:
            indexes = {
                (unique, origin, some, tuple(part[2] for part in connection.execute(f"PRAGMA index_info('{name}')")))
                for _, name, unique, origin, some in connection.execute(f"PRAGMA index_list('{table}')")
            }
            keys = {row[2:5] for row in connection.execute(f"PRAGMA foreign_key_list('{table}')")}
            columns = connection.execute(f"PRAGMA table_info('{table}')").fetchall()
            result[table] = (columns, indexes, keys)
        return result


@pytest.mark.parametrize("begun", [None, *sorted(path.stem for path in HERE.glob("schema_*.sql"))])
def test_migrations_and_a_fresh_schema_are_the_same(tmp_path, begun):
    if begun is not None:
        with sqlite3.connect(tmp_path / "migrated.db") as connection:
            connection.executescript((HERE / f"{begun}.sql").read_text())
    upgrade(tmp_path / "migrated.db")
    engine = create_engine(f"sqlite:///{tmp_path / 'fresh.db'}")
    schema.metadata.create_all(engine)
    engine.dispose()
    migrated, fresh = described(tmp_path / "migrated.db"), described(tmp_path / "fresh.db")
    assert migrated.keys() == fresh.keys()
    for table in fresh:
        assert migrated[table] == fresh[table], table


def test_new_tables_let_no_engine_count(tmp_path):
    upgrade(tmp_path / "pool.db")
    with sqlite3.connect(tmp_path / "pool.db") as connection:
        counts = "SELECT count(*) FROM sqlite_master WHERE name = 'sqlite_sequence'"
        assert connection.execute(counts).fetchone() == (0,)


GUARDED = ("message_nodes", "steps", "token_blocks", "tool_sets", "trajectories")
TRIGGERS = """
    SELECT c.relname, pg_get_triggerdef(t.oid), p.prosrc
    FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid
    WHERE c.relnamespace = %s::regnamespace AND NOT t.tgisinternal ORDER BY 1, 2
"""


def described_on_postgres(url, name):
    """Tables with their columns, keys, constraints, indexes, options and triggers, by their names too, which later
    migrations use.
    """
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url))
    try:
        found = inspect(engine)
        with psycopg.connect(url) as connection:
            options = dict(
                connection.execute(
                    "SELECT relname, reloptions FROM pg_class WHERE relnamespace = %s::regnamespace", [name]
                ).fetchall()
            )
            triggers: dict[str, list[str]] = {}
            for table, definition, body in connection.execute(TRIGGERS, [name]).fetchall():
                triggers.setdefault(table, []).append(definition.replace(f"{name}.", "") + body)
        return {
            table: (
                [(c["name"], c["type"].compile(engine.dialect), c["nullable"], c["default"]) for c in columns],
                found.get_pk_constraint(table, schema=name),
                sorted((each["name"], each["column_names"]) for each in found.get_unique_constraints(table, name)),
                sorted(
                    (each["name"], each["constrained_columns"], each["referred_table"], each["referred_columns"])
                    for each in found.get_foreign_keys(table, name)
                ),
                sorted((each["name"], each["column_names"], each["unique"]) for each in found.get_indexes(table, name)),
                options[table],
                triggers.get(table, []),
            )
            for (_, table), columns in found.get_multi_columns(schema=name).items()
            if table != "alembic_version"
        }
    finally:
        engine.dispose()


def test_on_postgresql_too(database):
    upgrade_schema(lambda: psycopg.connect(database), "migrated", 1, lambda raw: True)
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(database))
    with engine.begin() as connection:
        connection.execute(text("CREATE SCHEMA fresh"))
        connection.execute(text("SET LOCAL search_path TO fresh"))
        schema.metadata.create_all(connection)
    engine.dispose()
    migrated, fresh = described_on_postgres(database, "migrated"), described_on_postgres(database, "fresh")
    assert migrated.keys() == fresh.keys() == schema.metadata.tables.keys()
    assert {table for table, parts in fresh.items() if parts[-1]} == set(GUARDED)
    for table in fresh:
        for part, (one, other) in enumerate(zip(migrated[table], fresh[table], strict=True)):
            assert one == other, (table, part)


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


def test_nor_does_one_on_postgresql(postgres, database, monkeypatch):
    calls = []

    def breaking(*arguments, **options):
        calls.append(arguments)
        raise RuntimeError("power cut")

    monkeypatch.setattr(op, "rename_table", breaking)
    with pytest.raises(RuntimeError, match="power cut"):
        open_store(f"{database}?schema=pool")
    monkeypatch.undo()
    assert len(calls) == 1
    assert postgres.execute("SELECT count(*) FROM pg_namespace WHERE nspname = 'pool'", "migrations") == [(0,)]
    open_store(f"{database}?schema=pool").close()


def test_one_process_migrates_while_others_wait(database):
    with ThreadPoolExecutor(6) as threads:
        pools = list(threads.map(lambda _: open_store(database), range(6)))
    assert [pools[0].append_steps([step("t", step_id="a")])[0].outcome, ids(pools[5].list_steps())] == ["stored", ["a"]]
    for pool in pools:
        pool.close()


def test_an_open_pool_needs_no_alembic(tmp_path):
    SqlitePool(tmp_path / "pool.db").close()
    code = (
        "import sys; from agentworld.pool import open_store; "
        f"open_store('sqlite:///{tmp_path}/pool.db').close(); sys.exit('alembic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=150).returncode == 0


def test_the_journal_and_its_settings(sqlite_pool):
    connection = sqlite_pool._database.connect()
    read = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in SETTINGS}
    connection.close()
    assert read == SETTINGS


SETTINGS = {"journal_mode": "wal", "synchronous": 2, "wal_autocheckpoint": 0, "foreign_keys": 1}
