import shutil

import psycopg
import pytest

from agentworld.pool.memory import MemoryPool
from agentworld.pool.postgres import PostgresPool, database
from agentworld.pool.schema import metadata
from agentworld.pool.sqlite import SqlitePool

from .kept_connections import KeptConnections


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self):
        self.now = 1_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory):
    """A pool file that was made once; copying it is faster than migrating anew."""
    path = tmp_path_factory.mktemp("empty") / "pool.db"
    SqlitePool(path).close()
    return path


@pytest.fixture(scope="session")
def postgres_wipe(postgres):
    """A database with a pool that was made once, and a function that empties it, faster than making another."""
    url = postgres.fresh_pool_url()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TEMPORARY TABLE fresh AS TABLE counters")
        # Without the checks of foreign keys, so that the order does not matter.
        connection.execute("SET session_replication_role = replica")
        deletes = [f"DELETE FROM {table.name}" for table in metadata.sorted_tables]
        wipe = "; ".join([*deletes, "INSERT INTO counters SELECT * FROM fresh"])
        yield url, lambda: connection.execute(wipe)


@pytest.fixture
def postgres_url(postgres_wipe):
    """The URL of an empty pool on PostgreSQL; the next test gets the same one, empty again."""
    url, wipe = postgres_wipe
    wipe()
    return url


@pytest.fixture(scope="session")
def kept_connections(postgres):
    """Connections for pools that tests open one after another."""
    kept = KeptConnections()
    yield kept
    kept.close()


@pytest.fixture
def postgres_kept(postgres_url, kept_connections, monkeypatch):
    """As postgres_url; pools of the test use connections that were used before."""
    monkeypatch.setattr(database, "connect", kept_connections.connect)
    return postgres_url


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def pool(request, tmp_path, clock):
    """The store under the contract."""
    if request.param == "memory":
        store = MemoryPool(clock=clock)
    elif request.param == "sqlite":
        store = SqlitePool(shutil.copy(request.getfixturevalue("empty_file"), tmp_path / "pool.db"), clock=clock)
    else:
        store = PostgresPool(request.getfixturevalue("postgres_kept"), clock=clock)
    yield store
    store.close()


@pytest.fixture
def postgres_pool(postgres_kept, clock):
    store = PostgresPool(postgres_kept, clock=clock)
    yield store
    store.close()


@pytest.fixture
def sqlite_pool(tmp_path, clock, empty_file):
    store = SqlitePool(shutil.copy(empty_file, tmp_path / "pool.db"), clock=clock)
    yield store
    store.close()
