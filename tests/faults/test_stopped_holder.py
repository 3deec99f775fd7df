"""kill -STOP of a process in the middle of its transaction: others are told, and go on once it does or is gone."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import time

import pytest

from agentworld.errors import PoolError
from agentworld.pool.postgres import PostgresPool
from agentworld.pool.sqlite import SqlitePool
from tests.faults.workers import made_step, noted, stop_while_writing
from tests.power.survivors import listed

processes = multiprocessing.get_context("forkserver")


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def is_stopped(pid):
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout
    return state.startswith("T")


@contextlib.contextmanager
def stopped_holder(url, folder, *settings):
    """A process that has stopped inside its transaction; yields it, and ends it at last."""
    processes.set_forkserver_preload(["tests.faults.workers"])
    holder = processes.Process(target=stop_while_writing, args=(url, str(folder / "holder"), *settings))
    holder.start()
    try:
        until(lambda: noted(folder / "holder", "pid") and is_stopped(holder.pid))
        yield holder
    finally:
        holder.kill()
        holder.join(60)


def go_on(holder):
    os.kill(holder.pid, signal.SIGCONT)
    holder.join(60)
    assert holder.exitcode == 0


@pytest.fixture(params=["sqlite", "postgres"])
def opened(request, tmp_path):
    """A pool that waits for a moment only, its URL, and what it says when that is over."""
    if request.param == "sqlite":
        pool = SqlitePool(tmp_path / "pool.db", lock_seconds=0.2)
        yield pool, pool.url, "held by another process"
        pool.close()
    else:
        server = request.getfixturevalue("postgres")
        url = server.fresh_pool_url()
        pool = PostgresPool(url, lock_seconds=0.2)
        yield pool, url, "held by another writer"
        pool.close()
        server.drop_database(url.rpartition("/")[2])


@pytest.mark.parametrize("ends", ["goes on", "is killed"])
def test_who_waits_for_a_stopped_process_is_told_and_goes_on_after_it(opened, tmp_path, ends):
    pool, url, said = opened
    with stopped_holder(url, tmp_path) as holder:
        for _ in range(2):
            with pytest.raises(PoolError, match=said) as caught:
                pool.append_steps([made_step("t", 0)])
            assert "stopped" in caught.value.hint
        assert listed(pool) == []
        if ends == "goes on":
            go_on(holder)
        else:
            holder.kill()
            holder.join(60)
        until(lambda: is_stored(pool, made_step("t", 0)))
        expected = {"stopped:0", "t:0"} if ends == "goes on" else {"t:0"}
        assert {step.step_id for step in listed(pool)} == expected


def is_stored(pool, sent):
    """Whether the pool takes it; a server may take a moment to see that a client is gone."""
    try:
        return pool.append_steps([sent])[0].outcome == "stored"
    except PoolError:
        return False


def test_the_server_ends_the_transaction_of_a_process_that_stays_stopped(postgres, tmp_path):
    url = postgres.fresh_pool_url()
    pool = PostgresPool(url)
    with stopped_holder(url, tmp_path, 1) as holder:
        assert pool.append_steps([made_step("t", 0)])[0].outcome == "stored"
        go_on(holder)
    assert noted(tmp_path / "holder", "ended")
    assert {step.step_id for step in listed(pool)} == {"stopped:0", "t:0"}
    pool.close()
    postgres.drop_database(url.rpartition("/")[2])
