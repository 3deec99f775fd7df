"""Settings of the whole test run."""

import functools
import gc
import os
import ssl
from collections import Counter

import pytest
from hypothesis import settings

from agentworld import cli
from agentworld.pool import migrations
from tests.examples import examples
from tests.in_memory import folder_in_memory
from tests.migrated_once import Copies

# How long an example takes is the machine's business: on a busy one any may take long.
settings.register_profile("untimed", deadline=None, max_examples=examples(100))
settings.load_profile("untimed")

# Small models gain nothing from more threads, and tests of several processes would take each other's cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

if (_folder := folder_in_memory()) is not None:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _folder)


@pytest.hookimpl(tryfirst=True)
def pytest_collection():
    """Modules and items stay until the end: looking for garbage among them finds none, each time at more cost."""
    gc.disable()


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config, items):
    """Where processes share the files out, those with a slow test come first, then those with most tests, so that no
    process is left with a long one at the end.
    """
    if not hasattr(config, "workerinput"):
        return
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    number = Counter(item.path for item in items)
    items.sort(key=lambda item: (item.path not in slow, -number[item.path]))


@pytest.fixture(scope="session", autouse=True)
def _migrated_once():
    """A new SQLite pool of this process is a copy of the first one's, which was migrated; an old one is migrated."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(migrations, "upgrade", Copies(migrations.upgrade))
        yield


@pytest.fixture(scope="session", autouse=True)
def _commands_once():
    """A command line run in this process makes its command of the functions' signatures, the same each time."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cli, "get_command", functools.cache(cli.get_command))
        yield


@pytest.fixture(scope="session", autouse=True)
def _certificates_once():
    """Clients of many tests each read all certificates of the machine, and then speak plain HTTP to this machine."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ssl, "create_default_context", functools.cache(ssl.create_default_context))
        yield


@pytest.fixture(scope="session", autouse=True)
def _frozen():
    """What was collected stays frozen also after a benchmark, which freezes what is there while it measures."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gc, "unfreeze", lambda: None)
        yield


@pytest.fixture(scope="session")
def postgres():
    """A running PostgreSQL server; see PostgresServer for what it offers."""
    from tests.postgres_server import FAST, PostgresServer

    with PostgresServer(FAST) as server:
        yield server
