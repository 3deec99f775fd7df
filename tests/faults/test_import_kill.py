"""kill -9 during an import: each trajectory is there whole or not at all, and the same command makes the pool whole."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from agentworld.factory import open_pool
from agentworld.ingest.loader import import_paths

pytestmark = pytest.mark.faults
RUNS, TURNS, KILLS = 600, 4, 6


def contents(pool):
    """Every trajectory by its id, with its steps and rewards, and whether it is known as it was read."""
    found = {}
    cursor = None
    while True:
        page = pool.list_trajectories(cursor=cursor, limit=1000)
        for one in page.items:
            steps = pool.list_steps(trajectory_id=one.trajectory_id, include=["messages"]).items
            said = [(step.step_id, step.parent_step_id, step.prompt_messages, step.response_message) for step in steps]
            found[one.trajectory_id] = (one.metadata["import"]["digest"], one.status, one.rewards, said)
        if (cursor := page.next_cursor) is None:
            return found


def test_an_import_that_was_killed_is_made_whole_by_the_same_command(tmp_path):
    chosen = random.Random(5)
    path = tmp_path / "rows.jsonl"
    with path.open("w") as file:
        for number in range(RUNS):
            messages = []
            for _ in range(TURNS):
                messages.append({"role": "user", "content": f"{number} {chosen.random()}" + "x" * 2000})
                messages.append({"role": "assistant", "content": f"{chosen.random()}"})
            file.write(json.dumps({"messages": messages}) + "\n")
    with open_pool("memory://") as pool:
        import_paths(pool, [path])
        wanted = contents(pool)
    assert len(wanted) == RUNS

    url = f"sqlite:///{tmp_path}/pool.db"
    command = [sys.executable, "-m", "agentworld", "import", "auto", str(path), "--pool", url]
    before, cut = 0, 0
    for _ in range(KILLS):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        size = chosen.randrange(50_000, 2_000_000)
        while process.poll() is None and written(tmp_path) < before + size:
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
        before = written(tmp_path)
        with open_pool(url) as pool:
            found = contents(pool)
            assert pool.check() == []
        assert found == {name: wanted[name] for name in found}
        cut += 0 < len(found) < RUNS
    assert cut
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    with open_pool(url) as pool:
        assert contents(pool) == wanted


def written(folder):
    """Bytes of the pool's files."""
    sizes = 0
    for name in ("pool.db", "pool.db-wal"):
        try:
            sizes += os.stat(folder / name).st_size
        except FileNotFoundError:
            continue
    return sizes
