"""Pools as Ray datasets on a cluster of two nodes, each run in a process of its own."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

pytestmark = [pytest.mark.scale, pytest.mark.timeout(300)]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/pool.db"
    return request.getfixturevalue("postgres").fresh_pool_url()


def run(*arguments):
    """What the program prints; with all that it said in the error where it fails."""
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=240, cwd=ROOT, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_example_reads_all_steps_over_two_nodes(url):
    from examples.ray_pool import NEW_IDS, ROLLOUTS, TASKS, TURNS  # Only here, as Ray may be missing elsewhere.

    said = run("examples/ray_pool.py", url)
    print(said)
    steps = TASKS * ROLLOUTS * TURNS
    assert f"{steps} steps, {steps * NEW_IDS // 2} sampled tokens, read by 2 nodes" in said
    assert sum(map(int, re.findall(r"read (\d+) steps", said))) == steps
    groups = re.findall(r"mean reward ([0-9.]+) of (\d+), (\d+) sampled", said)
    assert groups == [(f"{(ROLLOUTS - 1) / 2:.2f}", str(ROLLOUTS), str(ROLLOUTS * TURNS * NEW_IDS // 2))] * TASKS


def test_each_step_of_the_plan_comes_once_while_others_write(url):
    from tests.scale.ray_reading import STEPS, TRAJECTORIES

    found = json.loads(run("-m", "tests.scale.ray_reading", url).splitlines()[-1])
    logs = Path(found.pop("logs"))
    every = sorted(f"s{number}" for number in range(STEPS))
    assert found == {
        "all": every,
        "chosen by Ray": every,
        "where": sorted(f"s{number}" for number in range(40 * TRAJECTORIES, STEPS)),
        "channel": sorted(f"s{number}" for number in range(7, STEPS, TRAJECTORIES)),
        "none": [],
    }
    written = [path for path in logs.rglob("*") if path.is_file()]
    assert written
    if password := re.search(r":([^:@/]+)@", url):
        assert [path for path in written if password[1].encode() in path.read_bytes()] == []
