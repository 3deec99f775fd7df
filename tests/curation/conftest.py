"""Pools that checks run over, on every store."""

import shutil

import pytest

from agentworld.pool.memory import MemoryPool
from agentworld.pool.postgres import PostgresPool
from agentworld.pool.sqlite import SqlitePool
from tests.pool.conftest import empty_file, kept_connections, postgres_kept, postgres_url, postgres_wipe

__all__ = ["empty_file", "kept_connections", "memory", "pool", "postgres_kept", "postgres_url", "postgres_wipe"]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def pool(request, tmp_path):
    if request.param == "memory":
        store = MemoryPool()
    elif request.param == "sqlite":
        store = SqlitePool(shutil.copy(request.getfixturevalue("empty_file"), tmp_path / "pool.db"))
    else:
        store = PostgresPool(request.getfixturevalue("postgres_kept"))
    yield store
    store.close()


@pytest.fixture
def memory():
    store = MemoryPool()
    yield store
    store.close()
