"""Versions of many rows: what is held in memory of each, and searches that take too long for a moment."""

import gc
import os
import random
import re
import resource
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest

from agentworld.curation.datasets.dividing import divide_selection
from agentworld.curation.datasets.frozen import FrozenTrajectory
from agentworld.curation.datasets.scratch import Scratch
from agentworld.curation.datasets.selecting import create_dataset
from agentworld.curation.exports.options import ExportOptions
from agentworld.curation.exports.registry import Work, layout_of
from agentworld.errors import PoolFullError, QueryError
from agentworld.pool.keeping.records import no_progress
from agentworld.pool.protocol import Page
from agentworld.records import DatasetRow, Message, Selection, Splits, Step, Trajectory
from tests.curation.datasets.filling import run

FEW, MANY = 2_000, 6_000
BYTES = 100  # of each row at the peak: a list of ids alone would take as much, and keys and texts ten times that


def words(name):
    return " ".join(str(number) for number in random.Random(name).choices(range(10_000), k=12))


class Selected:
    """So many trajectories that are made as they are asked for, each with a task of its own."""

    def __init__(self, count):
        self._count = count

    def list_trajectories(self, *, where, channel, cursor, limit):
        if "trajectory_id in" in where:
            return Page([self._made(name) for name in re.findall("'(.*?)'", where)], None)
        begin = int(cursor or 0)
        end = min(begin + limit, self._count)
        return Page([self._made(f"t{at:06d}") for at in range(begin, end)], str(end) if end < self._count else None)

    def _made(self, name):
        return Trajectory(trajectory_id=name, task={"task_id": name, "prompt": words(name)})


def divided(count):
    with Scratch() as scratch:
        made = divide_selection(Selected(count), Selection(splits=Splits()), (), scratch, no_progress)
        assert made.count == made.division.clusters == count


def written(layout, **options):
    """Does the work of a layout on so many trajectories of its own making, each of a group with the one after it."""

    def write(count):
        work = Work(ExportOptions(**options), Source(), Counter())
        made = layout_of(layout).make(work)
        for at in range(count):
            list(made.rows(frozen(at)))
        assert sum(1 for _ in made.rest()) in (0, count // 2)
        work.close()

    return write


class Source:
    class version:
        name = "d"

    def at(self, position):
        return frozen(position)


def frozen(at):
    name = f"t{at:06d}"
    step = Step(
        step_id=f"{name}-0",
        trajectory_id=name,
        prompt_messages=[Message(role="user", content=f"question {at // 2}")],
        response_message=Message(role="assistant", content=name),
    )
    trajectory = Trajectory(trajectory_id=name, group_id=f"g{at // 2:06d}", reward=at % 2)
    return FrozenTrajectory(
        row=DatasetRow(position=at, trajectory_id=name, split="train", steps=[]), trajectory=trajectory, steps=[step]
    )


def peak(work, count):
    gc.collect()
    tracemalloc.start()
    try:
        work(count)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("work", "most"), [(divided, BYTES), (written("rl-prompts"), 30), (written("preference", margin=0.5, most=1), 30)]
)
def test_memory_holds_little_of_each_row(work, most):
    work(100)  # What is made once.
    # Threads that other tests left may allocate for a moment; what is held of each row would be there every time.
    grown = (peak(work, MANY) - peak(work, FEW) for _ in range(3))
    assert any(more < most * (MANY - FEW) for more in grown)


class Slow:
    """A pool that says of a search that it took too long, where `when(where, times)` holds of the n-th in a row."""

    def __init__(self, pool, when):
        self._pool, self._when, self.times = pool, when, 0

    def __getattr__(self, name):
        return getattr(self._pool, name)

    def list_trajectories(self, *, where, **asked):
        self.times += 1
        if self._when(where, self.times):
            raise QueryError("the search with where took longer than 5 s", path="where")
        self.times = 0
        return self._pool.list_trajectories(where=where, **asked)

    def list_steps(self, *, where=None, **asked):
        return self._pool.list_steps(where=where, **asked)


@pytest.mark.parametrize(
    "when",
    [
        lambda where, times: times < 3,
        lambda where, times: where.count("'t") > 1,  # More than one of them never comes in time.
    ],
)
def test_a_search_that_takes_too_long_for_a_moment_ends_nothing(memory, when):
    for number in range(5):
        run(memory, f"t{number}")
    slow = Slow(memory, when)
    assert create_dataset(slow, "d") == create_dataset(memory, "d")
    assert create_dataset(memory, "d").rows == 5


@pytest.mark.parametrize("word", ["step_count", "trajectory_id in"])
def test_one_that_always_does_is_said(memory, word):
    run(memory, "t")
    with pytest.raises(QueryError, match="longer than 5 s"):
        create_dataset(Slow(memory, lambda where, times: word in where), "d")
    assert memory.list_datasets().items == []


def test_a_temporary_folder_without_room_is_named(memory, monkeypatch, tmp_path):
    run(memory, "t")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    with pytest.raises(PoolFullError, match=r"gone.*TMPDIR"):
        create_dataset(memory, "d")


def test_the_folder_of_tables_that_have_no_room_is_named():
    files = Path("/proc/self/fd")
    if not files.exists():
        pytest.skip("needs the list of open files")
    rows = [(bytes(1 << 20),)] * 24  # More than the cache holds.
    with Scratch() as scratch:
        scratch.make("rows (one BLOB)")
        scratch.many("INSERT INTO rows VALUES (?)", rows)
        open_files = [os.readlink(each) for each in files.iterdir() if each.is_symlink() and os.path.lexists(each)]
        [folder] = {os.path.dirname(each) for each in open_files if "etilqs_" in each}
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
        try:
            with pytest.raises(PoolFullError) as seen:
                scratch.many("INSERT INTO rows VALUES (?)", rows)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert f"nothing can be kept for a while in {folder}:" in seen.value.message
