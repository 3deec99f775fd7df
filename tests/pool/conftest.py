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


@pytest.fixture(params=["memory", "sqlite"])
def pool(request, tmp_path, clock):
    """The store under the contract."""
    store = MemoryPool(clock=clock) if request.param == "memory" else SqlitePool(tmp_path / "pool.db", clock=clock)
    yield store
    store.close()


@pytest.fixture
def sqlite_pool(tmp_path, clock):
    store = SqlitePool(tmp_path / "pool.db", clock=clock)
    yield store
    store.close()
