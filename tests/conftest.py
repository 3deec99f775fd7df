"""Settings of the whole test run."""

import os

import pytest
from hypothesis import settings

# How long an example takes is the machine's business: on a busy one any may take long.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# Small models gain nothing from more threads, and tests of several processes would take each other's cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@pytest.fixture(scope="session")
def postgres():
    """A running PostgreSQL server; see PostgresServer for what it offers."""
    from tests.postgres_server import FAST, PostgresServer

    with PostgresServer(FAST) as server:
        yield server
