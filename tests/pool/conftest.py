import shutil

import pytest

from agentworld.pool.memory import MemoryPool
from agentworld.pool.sqlite import SqlitePool


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


@pytest.fixture(params=["memory", "sqlite"])
def pool(request, tmp_path, clock, empty_file):
    """The store under the contract."""
    if request.param == "memory":
        store = MemoryPool(clock=clock)
    else:
        store = SqlitePool(shutil.copy(empty_file, tmp_path / "pool.db"), clock=clock)
    yield store
    store.close()


@pytest.fixture
def sqlite_pool(tmp_path, clock, empty_file):
    store = SqlitePool(shutil.copy(empty_file, tmp_path / "pool.db"), clock=clock)
    yield store
    store.close()
