"""A log that a killed process left, beside a path from which its pool was moved away."""

import os
import signal

import pytest

from agentworld.errors import PoolError
from agentworld.pool.restore import restore
from agentworld.pool.sqlite import SqlitePool
from tests.faults.test_stopped_holder import processes, until

from .samples import ids, step


def write_and_stop(path, told):
    pool = SqlitePool(path)
    pool.append_steps([step("t", step_id="kept")])
    pool.backup(path.with_name("pool.backup"))
    pool.append_steps([step("t", step_id="last")])
    told.set()
    signal.pause()


@pytest.fixture
def killed(tmp_path):
    """The path of a pool whose process was killed; its last commit is in the log alone."""
    told = processes.Event()
    holder = processes.Process(target=write_and_stop, args=(tmp_path / "pool.db", told))
    holder.start()
    until(told.is_set)
    os.kill(holder.pid, signal.SIGKILL)
    holder.join(60)
    return tmp_path / "pool.db"


@pytest.fixture
def moved(killed):
    """The same after its file was moved away without its log."""
    killed.rename(killed.with_name("aside.db"))
    return killed


def check_it_is_whole_once_put_back(path):
    path.with_name("aside.db").rename(path)
    pool = SqlitePool(path)
    assert ids(pool.list_steps()) == ["kept", "last"]
    assert pool.check() == []
    pool.close()


def test_nothing_is_restored_beside_it(moved):
    with pytest.raises(PoolError, match=r"pool\.db-wal is the log of a pool that is not there") as caught:
        restore(moved.with_name("pool.backup"), f"sqlite:///{moved}")
    assert "remove the log" in caught.value.hint
    assert not moved.exists()
    check_it_is_whole_once_put_back(moved)


def test_no_archive_is_written_beside_it(moved, tmp_path):
    pool = SqlitePool(tmp_path / "other.db")
    with pytest.raises(PoolError, match=r"pool\.db-wal is the log of a pool"):
        pool.backup(moved)
    pool.close()
    check_it_is_whole_once_put_back(moved)


@pytest.mark.parametrize("empty", [False, True])
def test_no_pool_is_begun_beside_it_which_would_remove_it(moved, empty):
    if empty:
        moved.touch()
    with pytest.raises(PoolError, match=r"pool\.db-wal is the log of a pool"):
        SqlitePool(moved)
    assert moved.exists() == empty
    check_it_is_whole_once_put_back(moved)


def test_once_the_log_is_gone_too_all_of_it_can_be_done(moved):
    moved.with_name("pool.db-wal").unlink()
    restore(moved.with_name("pool.backup"), f"sqlite:///{moved}")
    pool = SqlitePool(moved)
    assert ids(pool.list_steps()) == ["kept"]
    assert pool.check() == []
    pool.close()
