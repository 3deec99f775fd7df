"""A page of any kind that the benchmark asks for takes as much work in a large pool as in a small one."""

import contextlib

import numpy as np
import pytest

from agentworld.bench import reading
from agentworld.bench.filling import TURNS, fill
from agentworld.pool.sqlite import SqlitePool, connection

SMALL, LARGE = 10_000, 40_000
_STEP = 100  # of SQLite's machine, between two counts
MOST = 60_000  # such steps of one page; sorting the 18,000 steps of an hour takes ten times as many
KINDS = {
    **{f"trajectories: {name}": ("list_trajectories", query) for name, query in reading._TRAJECTORIES.items()},
    **{f"steps: {name}": ("list_steps", query) for name, query in reading._STEPS.items()},
}


@pytest.fixture(scope="module")
def pools(tmp_path_factory):
    """A small and a large pool by their number of steps."""
    made = {size: SqlitePool(tmp_path_factory.mktemp("work") / "pool.db") for size in (SMALL, LARGE)}
    for size, pool in made.items():
        fill(pool, size, seed=7)
    yield made
    for pool in made.values():
        pool.close()


@pytest.fixture
def work(monkeypatch):
    """What SQLite does for the searches of a call, in steps of its machine."""
    counted = [0]

    @contextlib.contextmanager
    def counting(reader, seconds):
        def count():
            counted[0] += _STEP
            return 0

        reader.raw.set_progress_handler(count, _STEP)
        try:
            yield
        finally:
            reader.raw.set_progress_handler(None, 0)

    def of(call, **asked):
        counted[0] = 0
        call(**asked)
        return counted[0]

    monkeypatch.setattr(connection.SqliteConnection, "limited", counting)
    return of


def asked_of(size, kind, order):
    """Queries of a kind, from the beginning and from places inside."""
    method, query = KINDS[kind]
    dice = np.random.default_rng(3)
    trajectories = size // TURNS
    rows = size if method == "list_steps" else trajectories
    for turn in range(8):
        where = query(dice, trajectories)
        cursor = f"{order[0]}{dice.integers(rows):x}" if turn % 2 else None
        yield method, {"where": where, "cursor": cursor, "order": order}


@pytest.mark.parametrize("order", ["oldest", "newest"])
@pytest.mark.parametrize("kind", KINDS)
def test_work_is_bounded(pools, work, kind, order):
    for method, asked in asked_of(LARGE, kind, order):
        assert work(getattr(pools[LARGE], method), **asked) <= MOST, asked


def test_all_kinds_together_take_no_more_in_a_larger_pool(pools, work):
    took = {
        size: [
            work(getattr(pools[size], method), **asked)
            for kind in KINDS
            for order in ("oldest", "newest")
            for method, asked in asked_of(size, kind, order)
        ]
        for size in (SMALL, LARGE)
    }
    assert np.percentile(took[SMALL], 95) > 1_000
    assert np.percentile(took[LARGE], 95) <= 1.5 * np.percentile(took[SMALL], 95)
