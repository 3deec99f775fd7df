"""Power loss on SQLite: what a caller was told is there after it, whatever part of the rest the disk kept."""

import itertools
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.power.disk import MODES, Disk, crash_points, load
from tests.power.survivors import problems
from tests.power.vfs import Unwatchable, library

ROOT = Path(__file__).parent.parent.parent
POINTS = int(os.environ.get("AGENTWORLD_POWER_POINTS", "400"))


@pytest.fixture
def watchable():
    """Where SQLite cannot be watched the quick tests are skipped, and `make test-faults` fails and says why."""
    try:
        library()
    except Unwatchable as error:
        pytest.skip(str(error))


def recorded(tmp_path, *pragma):
    """The events of a run in a process of its own."""
    folder = tmp_path / "run"
    folder.mkdir()
    command = [sys.executable, "-m", "tests.power.workload", str(folder), str(tmp_path / "events"), *pragma]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return folder, load(tmp_path / "events")


def losses(tmp_path, number, seed, *pragma):
    """What is wrong after a power loss at each of `number` points, as {(point, mode): problems}."""
    folder, events = recorded(tmp_path, *pragma)
    chance, modes = random.Random(seed), itertools.cycle(MODES)
    disk, done, found = Disk(), 0, {}
    for point in crash_points(events, number, seed):
        for event in events[done:point]:
            disk.follow(event)
        done, mode = point, next(modes)
        for path in folder.iterdir():
            path.unlink()
        for path, content in disk.after_power_loss(mode, chance).items():
            Path(path).write_bytes(content)
        # Left by the kernel in whatever state; SQLite must not believe it.
        (folder / "pool.db-shm").write_bytes(chance.randbytes(32_768))
        if wrong := problems(folder, disk.told):
            found[point, mode] = wrong
    return found


@pytest.mark.usefixtures("watchable")
def test_a_few_power_losses_lose_nothing_that_was_told(tmp_path):
    assert losses(tmp_path, 24, seed=3) == {}


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_power_losses_at_many_points_lose_nothing_that_was_told(tmp_path):
    assert losses(tmp_path, POINTS, seed=1) == {}


@pytest.mark.parametrize("pragma", ["synchronous = OFF", "synchronous = NORMAL"])
@pytest.mark.usefixtures("watchable")
def test_a_pool_that_did_not_sync_would_be_caught(tmp_path, pragma):
    """The same harness sees what weaker settings lose, so that finding nothing means something."""
    found = losses(tmp_path, 12, 5, pragma)
    seen = [problem for wrong in found.values() for problem in wrong]
    assert any("is lost" in problem or "does not" in problem for problem in seen)
