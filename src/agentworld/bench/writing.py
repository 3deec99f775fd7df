"""How many durable steps a second: in batches of 64 and one at a time, 500 new ids a step, 50-turn trajectories."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator, Sequence

from agentworld.api.worker import COLLECTING
from agentworld.bench.figure import Figure
from agentworld.bench.record import Bench, one_core, seconds
from agentworld.pool.protocol import Pool
from agentworld.records import Step
from agentworld.testing.workload import in_turn_order, tool_trajectories

BATCH = 64
_TURNS = 50
_FLAT_STEPS = 800  # 16 trajectories, as whole sequences take their time
_IN_FLIGHT = 8  # batches that wait for their commit at a time
_THREADS = 16


def write(bench: Bench) -> list[Figure]:
    """Rates of this process on one core (of PostgreSQL, the server has the others)."""
    figures = []
    for texts, what in ((False, "ids only"), (True, "with messages")):
        steps = _steps(bench, bench.steps, texts)
        few = steps[: bench.steps // 4]
        figures += [
            Figure(
                name=f"batches of {BATCH}, {what}",
                value=_pool_rate(bench, steps, lambda pool, steps: _in_batches(pool, steps)),
                beside=_flat_rate(bench, texts, BATCH),
                unit="steps/s",
                required=None if texts else 10_000,
            ),
            Figure(
                name=f"one at a time, {_THREADS} threads, {what}",
                value=_pool_rate(bench, few, lambda pool, steps: _by_threads(pool, steps, _THREADS)),
                beside=_flat_rate(bench, texts, 1),
                unit="steps/s",
                required=None if texts else 2_000,
            ),
            Figure(
                name=f"one at a time, 1 thread, {what}",
                value=_pool_rate(
                    bench, few[: max(_TURNS, len(few) // 2)], lambda pool, steps: _by_threads(pool, steps, 1)
                ),
                beside=_flat_rate(bench, texts, 1),
                unit="steps/s",
            ),
        ]
    return figures


def _steps(bench: Bench, count: int, texts: bool) -> list[Step]:
    rollouts = 16
    tasks = max(1, round(count / (_TURNS * rollouts)))
    return list(in_turn_order(list(tool_trajectories(tasks, rollouts, _TURNS, 500, bench.seed, texts))))


def _pool_rate(bench: Bench, steps: Sequence[Step], work: Callable[[Pool, Sequence[Step]], object]) -> float:
    with one_core(), bench.pool() as pool, _unwatched():
        return len(steps) / seconds(lambda: work(pool, steps))


def _flat_rate(bench: Bench, texts: bool, size: int) -> float:
    steps = _steps(bench, _FLAT_STEPS, texts)
    batches = [steps[at : at + size] for at in range(0, len(steps), size)]

    with one_core(), bench.flat() as table, _unwatched():

        def write_all() -> None:
            for batch in batches:
                table.append(batch)

        return len(steps) / seconds(write_all)


@contextlib.contextmanager
def _unwatched() -> Iterator[None]:
    """Inside, the garbage collector does not walk over the records that were made for the measurement, which a process
    that writes as they come would not hold, and comes as often as in the workers of a server.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTING)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _in_batches(pool: Pool, steps: Sequence[Step]) -> None:
    waiting = []
    for at in range(0, len(steps), BATCH):
        waiting.append(pool.submit_steps(steps[at : at + BATCH]))
        if len(waiting) == _IN_FLIGHT:
            _check(waiting.pop(0).result())
    for future in waiting:
        _check(future.result())


def _by_threads(pool: Pool, steps: Sequence[Step], threads: int) -> None:
    """Each thread has trajectories of its own, and waits for each step's commit."""
    names = list(dict.fromkeys(step.trajectory_id for step in steps))
    owner = {name: number % threads for number, name in enumerate(names)}
    failed: list[BaseException] = []

    def run(mine: Sequence[Step]) -> None:
        try:
            for step in mine:
                _check(pool.append_steps([step]))
        except BaseException as error:
            failed.append(error)

    shares = [[step for step in steps if owner[step.trajectory_id] == number] for number in range(threads)]
    running = [threading.Thread(target=run, args=(share,)) for share in shares if share]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if failed:
        raise failed[0]


def _check(results: Sequence[object]) -> None:
    wrong = [result for result in results if getattr(result, "outcome", None) != "stored"]
    if wrong:
        raise RuntimeError(f"a step of the measurement was not stored: {wrong[0]}")
