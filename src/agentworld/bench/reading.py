"""How fast sequences are read as arrays; how long pages and the overview take in a small and in a large pool."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from contextlib import ExitStack

import numpy as np

from agentworld.bench.figure import Figure
from agentworld.bench.filling import ROLLOUTS, SECONDS, STARTED, TURNS, USERS, fill
from agentworld.bench.record import Bench, one_core, seconds
from agentworld.pool.protocol import Pool
from agentworld.testing.workload import tool_trajectories

SMALL = 10_000
_READ_TURNS = TURNS
_BATCH = 64
_PAGES = 200  # of each kind and size
_OVERVIEWS = 300
_LIMIT = 100


def read(bench: Bench) -> list[Figure]:
    """Sequences of 50-turn trajectories with shared beginnings, on one core (a PostgreSQL server has the others)."""
    work = list(tool_trajectories(1, 16, _READ_TURNS, 500, bench.seed, texts=False))
    with one_core(), bench.pool() as pool, bench.flat() as flat:
        for steps in work:
            for at in range(0, len(steps), _BATCH):
                pool.append_steps(steps[at : at + _BATCH])
                flat.append(steps[at : at + _BATCH])
        ids = sum(len(one.ids) for one in pool.sequences())  # Also warms up.
        rates = {
            "a trajectory at a time": lambda: [_count(pool, steps[0].trajectory_id) for steps in work],
            "the whole pool": lambda: sum(len(one.ids) for one in pool.sequences()),
            "each sequence copied": lambda: [one.ids.copy() for one in pool.sequences()],
        }
        theirs = ids / seconds(flat.read_ids) / 1e6
        return [
            Figure(
                name=name, value=ids / seconds(work_) / 1e6, beside=theirs, unit="M ids/s", required=_required(bench)
            )
            for name, work_ in rates.items()
        ]


def _required(bench: Bench) -> float | None:
    return 40.0 if bench.url is None else None


def _count(pool: Pool, trajectory_id: str) -> int:
    return sum(len(one.ids) for one in pool.sequences(trajectory_id=trajectory_id))


Query = Callable[[np.random.Generator, int], str]  # `where`, for a pool of so many trajectories
_TRAJECTORIES: dict[str, Query] = {
    "reward and complete": lambda dice, n: f"reward >= {dice.random():.4f} and complete",
    "a rare reward": lambda dice, n: f"reward >= {1 - dice.random() / 500:.6f}",
    "failed": lambda dice, n: "status == 'failed'",
    "channel and reward": lambda dice, n: f"channel == 'val' and reward > {dice.random():.4f}",
    "group": lambda dice, n: f"group_id == 'g{dice.integers(n // ROLLOUTS)}'",
    "user": lambda dice, n: f"user == 'u{dice.integers(USERS)}'",
    "policy": lambda dice, n: f"policy.model == 'm' and policy.run == 'r' and version == {dice.integers(100)}",
    "time": lambda dice, n: _hour(dice, n),
    "open": lambda dice, n: "open",
}
_STEPS: dict[str, Query] = {
    "steps of a trajectory": lambda dice, n: f"trajectory_id == 't{dice.integers(n)}'",
    "steps of a group": lambda dice, n: f"group_id == 'g{dice.integers(n // ROLLOUTS)}' and step_index < 9",
    "steps of a user": lambda dice, n: f"user == 'u{dice.integers(USERS)}'",
    "steps of a channel": lambda dice, n: "channel == 'val'",
    "steps of an hour": lambda dice, n: _hour(dice, n),
    "steps of failures": lambda dice, n: "status == 'failed'",
}


def page(bench: Bench) -> list[Figure]:
    """P95 of pages of 100 filtered on indexed fields, half of them from a cursor in the middle, and of the overview."""
    dice = np.random.default_rng([bench.seed, 6])
    kinds = [(name, "trajectories", query) for name, query in _TRAJECTORIES.items()]
    kinds += [(name, "steps", query) for name, query in _STEPS.items()]
    each = max(1, _PAGES // len(kinds))
    sizes = (SMALL, bench.large)
    took: dict[tuple[str, int], list[float]] = {}
    overviews: dict[int, list[float]] = {size: [] for size in sizes}
    with ExitStack() as open_:
        pools = [open_.enter_context(bench.pool()) for _ in sizes]
        counts = [fill(pool, size, bench.seed) for pool, size in zip(pools, sizes, strict=True)]
        for turn in range(each + 1):
            for (name, subject, query), (pool, count, size) in (
                (kind, at) for kind in kinds for at in zip(pools, counts, sizes, strict=True)
            ):
                where = query(dice, count)
                middle = dice.integers(count if subject == "trajectories" else count * TURNS)
                cursor = f"o{middle:x}" if turn % 2 else None
                call = pool.list_trajectories if subject == "trajectories" else pool.list_steps
                spent = _timed(functools.partial(call, where=where, cursor=cursor))
                if turn:  # The first warms up.
                    took.setdefault((name, size), []).append(spent)
        for pool, size in zip(pools, sizes, strict=True):
            overviews[size] = [_timed(pool.stats) for _ in range(_OVERVIEWS)]
    figures = [
        Figure(
            name=f"P95 of a page: {name}", value=_p95(took[name, bench.large]), unit="ms", required=50, better="less"
        )
        for name, _, _ in kinds
    ]
    small, large = ([spent for (_, at), several in took.items() if at == size for spent in several] for size in sizes)
    figures += _grown("a page, all kinds", small, large, 50)
    return figures + _grown("the overview", overviews[SMALL], overviews[bench.large], 10)


def _grown(name: str, small: list[float], large: list[float], required: float) -> list[Figure]:
    return [
        Figure(name=f"P95 of {name}", value=_p95(large), unit="ms", required=required, better="less"),
        Figure(
            name=f"of the same at {SMALL:,} steps", value=_p95(large) / _p95(small), unit="times", required=1.5,
            better="less",
        ),
    ]  # fmt: skip


def _hour(dice: np.random.Generator, count: int) -> str:
    begin = STARTED + dice.integers(count) * SECONDS
    return f"created_at >= {begin} and created_at < {begin + 3600}"


def _timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return (time.perf_counter() - begin) * 1000


def _p95(spent: list[float]) -> float:
    return float(np.percentile(spent, 95))
