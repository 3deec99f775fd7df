"""kill -STOP of a process in the middle of its transaction: others are told, and go on once it does or is gone."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import time

import pytest

from agentworld.errors import PoolError
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
def stopped_holder(url, folder):
    """A process that has stopped inside its transaction; yields it, and ends it at last."""
    processes.set_forkserver_preload(["tests.faults.workers"])
    holder = processes.Process(target=stop_while_writing, args=(url, str(folder / "holder")))
    holder.start()
    try:
        until(lambda: noted(folder / "holder", "pid") and is_stopped(holder.pid))
        yield holder
    finally:
        holder.kill()
        holder.join(60)


@pytest.mark.parametrize("ends", ["goes on", "is killed"])
def test_who_waits_for_a_stopped_process_is_told_and_goes_on_after_it(tmp_path, ends):
    pool = SqlitePool(tmp_path / "pool.db", lock_seconds=0.2)
    with stopped_holder(pool.url, tmp_path) as holder:
        for _ in range(2):
            with pytest.raises(PoolError, match="held by another process") as caught:
                pool.append_steps([made_step("t", 0)])
            assert "may be stopped" in caught.value.hint
        assert listed(pool) == []
        if ends == "goes on":
            os.kill(holder.pid, signal.SIGCONT)
            holder.join(60)
            assert holder.exitcode == 0
        else:
            holder.kill()
            holder.join(60)
        assert pool.append_steps([made_step("t", 0)])[0].outcome == "stored"
        expected = {"stopped:0", "t:0"} if ends == "goes on" else {"t:0"}
        assert {step.step_id for step in listed(pool)} == expected
    pool.close()
