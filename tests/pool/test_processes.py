"""Several processes on one file: nothing lost, nothing twice, whoever is killed."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from agentworld.pool.sqlite import SqlitePool

WRITER = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from agentworld.pool.sqlite import SqlitePool
    from agentworld.records import Step

    path, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    pool = SqlitePool(path)
    shared = list(range(1000))
    for number in range(count):
        step = Step(step_id=f"{name}-{number}", trajectory_id=f"t{number % 3}", prompt_ids=shared,
                    response_ids=[number, 1])
        assert pool.append_steps([step])[0].outcome == "stored"
        print(step.step_id, flush=True)
    pool.close()
    """
)


def start(path, name, count):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(count)], stdout=subprocess.PIPE, text=True
    )


def everything(pool):
    found, cursor = [], None
    while True:
        page = pool.list_steps(cursor=cursor, limit=500)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found


def test_three_writers_lose_nothing_and_store_nothing_twice(tmp_path):
    path = tmp_path / "pool.db"
    writers = [start(path, name, 60) for name in "abc"]
    acknowledged = set()
    for writer in writers:
        output, _ = writer.communicate(timeout=120)
        assert writer.returncode == 0
        acknowledged |= set(output.split())
    pool = SqlitePool(path)
    found = everything(pool)
    assert len(found) == 180
    assert {step.step_id for step in found} == acknowledged
    for trajectory in ("t0", "t1", "t2"):
        indexes = [step.step_index for step in found if step.trajectory_id == trajectory]
        assert indexes == list(range(60))
    sequences = [event.sequence for event in pool.events()]
    assert sequences == list(range(1, 184))
    assert pool.stats().tokens_stored == 1000 // 128 * 128 + 180 * (1002 % 128)
    assert (pool.stats().steps, pool.stats().trajectories) == (180, {"open": 3})
    pool.close()


@pytest.mark.parametrize("after", [1, 7, 20])
def test_what_was_acknowledged_survives_a_kill(tmp_path, after):
    path = tmp_path / "pool.db"
    writer = start(path, "w", 100_000)
    acknowledged = [writer.stdout.readline().strip() for _ in range(after)]
    os.kill(writer.pid, signal.SIGKILL)
    # Not `communicate`, which leaves out what readline has read ahead.
    acknowledged += writer.stdout.read().split()
    writer.wait(timeout=150)
    pool = SqlitePool(path)
    found = [step.step_id for step in everything(pool)]
    assert len(found) == len(set(found)) == pool.stats().steps
    assert set(acknowledged) <= set(found)
    # At most the one step whose answer the kill swallowed.
    assert len(found) <= len(acknowledged) + 1
    for step_id in found:
        assert pool.get_step(step_id).prompt_ids == list(range(1000))
    pool.close()
