"""Power loss on SQLite: what a caller was told is there after it, whatever part of the rest the disk kept."""

import itertools
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from agentworld.pool.sqlite import SqlitePool
from tests.pool.test_old_schemas import HERE, OLD, restore
from tests.power.disk import MODES, Disk, crash_points, load
from tests.power.survivors import listed, problems, unsound
from tests.power.vfs import Unwatchable, library
from tests.power.workload import numbered_step

ROOT = Path(__file__).parent.parent.parent
POINTS = int(os.environ.get("AGENTWORLD_POWER_POINTS", "400"))


@pytest.fixture
def watchable():
    """Where SQLite cannot be watched the quick tests are skipped, and `make test-faults` fails and says why."""
    try:
        library()
    except Unwatchable as error:
        pytest.skip(str(error))


def recorded(kind, folder, events, *pragma):
    """The events of a run in a process of its own."""
    command = [sys.executable, "-m", "tests.power.workload", kind, str(folder), str(events), *pragma]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return load(events)


def power_losses(folder, events, points, seed, files=(), modes=MODES):
    """Cut the power at `points`: each leaves in `folder` what was kept; yields (point, mode, what was told)."""
    chance, modes = random.Random(seed), itertools.cycle(modes)
    disk, done = Disk(files), 0
    for point in points:
        for event in events[done:point]:
            disk.follow(event)
        done, mode = point, next(modes)
        for path in folder.iterdir():
            path.unlink()
        for path, content in disk.after_power_loss(mode, chance).items():
            Path(path).write_bytes(content)
        # Left by the kernel in whatever state; SQLite must not believe it.
        (folder / "pool.db-shm").write_bytes(chance.randbytes(32_768))
        yield point, mode, disk.told


def a_day(tmp_path, *pragma):
    """The folder of a pool and the events of its day."""
    folder = tmp_path / "run"
    folder.mkdir()
    return folder, recorded("work", folder, tmp_path / "events", *pragma)


def losses(tmp_path, number, seed):
    """What is wrong after a power loss at each of `number` points of a pool's day, as {(point, mode): problems}."""
    folder, events = a_day(tmp_path)
    cuts = power_losses(folder, events, crash_points(events, number, seed), seed)
    found = {(point, mode): problems(folder, told) for point, mode, told in cuts}
    return {place: wrong for place, wrong in found.items() if wrong}


@pytest.mark.usefixtures("watchable")
def test_a_few_power_losses_lose_nothing_that_was_told(tmp_path):
    assert losses(tmp_path, 16, seed=3) == {}


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_power_losses_at_many_points_lose_nothing_that_was_told(tmp_path):
    assert losses(tmp_path, POINTS, seed=1) == {}


@pytest.mark.parametrize("pragma", ["synchronous = OFF", "synchronous = NORMAL", "unsynced"])
@pytest.mark.usefixtures("watchable")
def test_a_pool_that_did_not_sync_would_be_caught(tmp_path, pragma):
    """The same harness sees what weaker settings lose, so that finding nothing means something.

    The power goes each time that something was told, and nothing is kept but what was synced, until a loss is seen.
    """
    folder, events = a_day(tmp_path, pragma)
    points = [place for place, event in enumerate(events, 1) if event[0] == "told"]
    cuts = power_losses(folder, events, points, 5, modes=["synced"])
    seen = (problem for _, _, told in cuts for problem in problems(folder, told))
    assert any("is lost" in problem or "does not" in problem for problem in seen)


def migrations_undone(tmp_path, schema, number, seed):
    """Points at which a power loss while a pool of an earlier schema is migrated costs some of its content."""
    folder, path = tmp_path / schema, tmp_path / schema / "pool.db"
    folder.mkdir()
    restore(schema, path)
    before = {str(path): path.read_bytes()}
    expected = json.loads((HERE / f"{schema}.json").read_text())
    events = recorded("migrate", folder, tmp_path / "events")
    wrong = []
    for point, mode, _ in power_losses(folder, events, crash_points(events, number, seed), seed, before):
        pool = SqlitePool(path)
        kept = [step.step_id for step in listed(pool)] == [step["step_id"] for step in expected["steps"]]
        goes_on = pool.append_steps([numbered_step(1_000_000)])[0].outcome == "stored"
        pool.close()
        if not kept or not goes_on or unsound(path):
            wrong.append((point, mode))
    return wrong


@pytest.mark.parametrize("schema", OLD)
@pytest.mark.usefixtures("watchable")
def test_a_power_loss_during_a_migration_leaves_the_pool_of_before_or_after(tmp_path, schema):
    assert migrations_undone(tmp_path, schema, 12, seed=2) == []


@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.parametrize("schema", OLD)
def test_power_losses_at_many_points_of_a_migration(tmp_path, schema):
    assert migrations_undone(tmp_path, schema, POINTS // 2, seed=4) == []
