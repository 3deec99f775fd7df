"""Pools that checks run over, on every store."""

import pytest

from agentworld.pool.memory import MemoryPool
from agentworld.pool.postgres import PostgresPool
from agentworld.pool.sqlite import SqlitePool


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def pool(request, tmp_path):
    if request.param == "memory":
        store = MemoryPool()
    elif request.param == "sqlite":
        store = SqlitePool(tmp_path / "pool.db")
    else:
        store = PostgresPool(request.getfixturevalue("postgres").fresh_pool_url())
    yield store
    store.close()


@pytest.fixture
def memory():
    store = MemoryPool()
    yield store
    store.close()
