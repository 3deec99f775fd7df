"""How long a lease takes in a small and in a large pool, how many there are a second, and who waits for the lock."""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from multiprocessing.queues import Queue
from statistics import mean

import numpy as np

from agentworld.bench.figure import Figure
from agentworld.bench.filling import fill
from agentworld.bench.reading import SMALL
from agentworld.bench.record import Bench
from agentworld.pool import open_store
from agentworld.pool.protocol import Pool
from agentworld.records import BatchSpec, NewTrajectory
from agentworld.testing.workload import tool_trajectories

CONSUMERS = 8
_LEASES = 200  # timed of each kind and size
_MOST_GROUPS = 1_200
_ROLLOUTS = 4
_TURNS = 5
_NEW_IDS = 200
_SECONDS = 2.0  # that each rate is measured in each turn
_TURNS_OF_RATES = 3
_RATE = BatchSpec(method="reinforce", size=4)
_Job = Callable[[str, str, threading.Barrier, "Queue[tuple[str, float]]"], None]


def lease(bench: Bench) -> list[Figure]:
    """P95 of a lease with all that it holds; rates by consumers of one name, in threads and in processes."""
    figures: list[Figure] = []
    for name, (spec, prepare) in _KINDS.items():
        with contextlib.ExitStack() as stack:
            urls = [stack.enter_context(bench.place()) for _ in range(2)]
            pools = [stack.enter_context(contextlib.closing(open_store(url))) for url in urls]
            for pool, size in zip(pools, (SMALL, bench.large), strict=True):
                prepare(pool, size, bench.seed)
            # By turns, as the machine may change its speed.
            took = list(zip(*(_timed_leases(pool, spec, "timed") for pool in pools), strict=True))
            if prepare is _with_groups:
                figures += _rates(pools[1], urls[1])
        small, large = (float(value) for value in np.percentile(took, 95, axis=0))
        figures.append(Figure(name=f"P95 of a lease: {name}", value=large, unit="ms", required=20, better="less"))
        figures.append(
            Figure(
                name=f"of the same at {SMALL:,} steps", value=large / small, unit="times", required=1.5, better="less"
            )
        )
    return figures


def _with_groups(pool: Pool, size: int, seed: int) -> None:
    """Groups with content, which are the oldest and so are leased first, and rows up to the size. Of a large pool they
    are enough for as long as a rate is measured, as rows alone are leased at another one.
    """
    groups = max(_LEASES + 2, min(_MOST_GROUPS, size // (2 * _ROLLOUTS * _TURNS)))
    count = groups * _ROLLOUTS
    made = islice(tool_trajectories(groups, _ROLLOUTS, _TURNS, _NEW_IDS, seed, texts=False), count)

    def add(numbered: tuple[int, Sequence[object]]) -> None:
        number, steps = numbered
        name = steps[0].trajectory_id  # type: ignore[attr-defined]
        pool.create_trajectory(
            NewTrajectory(trajectory_id=name, group_id=f"real-{number // _ROLLOUTS}", group_size=_ROLLOUTS)
        )
        pool.append_steps(steps)  # type: ignore[arg-type]
        pool.complete_trajectory(name, "finished", float(number % 2))

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(add, enumerate(made)))
    fill(pool, max(0, size - count * _TURNS), seed)


def _alike(pool: Pool, size: int, seed: int) -> None:
    """Rows alone, so that whatever chance takes is of one kind, however large the pool is."""
    fill(pool, size, seed, _TURNS)


_KINDS: dict[str, tuple[BatchSpec, Callable[[Pool, int, int], None]]] = {
    f"a group of {_ROLLOUTS} rollouts of {_TURNS} steps": (
        BatchSpec(method="grpo", groups=1, rollouts=_ROLLOUTS),
        _with_groups,
    ),
    f"2 trajectories of {_TURNS} steps without content, by chance": (
        BatchSpec(method="reinforce", size=2, order="random", seed=1),
        _alike,
    ),
}


def _timed_leases(pool: Pool, spec: BatchSpec, consumer: str) -> Iterator[float]:
    """Milliseconds of each lease; the first brings the backlog up to date."""
    for number in range(_LEASES + 1):
        begin = time.perf_counter()
        batch = pool.lease(spec, consumer)
        spent = (time.perf_counter() - begin) * 1000
        assert batch is not None
        pool.ack(batch.batch_id, batch.epoch)
        if number:
            yield spent


def _rates(pool: Pool, url: str) -> list[Figure]:
    ways: dict[str, Callable[[str], float]] = {
        "one-thread": lambda consumer: _threads(pool, 1, consumer),
        "threads": lambda consumer: _threads(pool, CONSUMERS, consumer),
        "one-process": lambda consumer: _processes(url, [_consume], consumer)[0],
        "processes": lambda consumer: _processes(url, [_consume] * CONSUMERS, consumer)[0],
    }
    # By turns, as the machine may change its speed. Each name has all there is before it.
    rates = [[rate(f"{name}-{turn}") for name, rate in ways.items()] for turn in range(_TURNS_OF_RATES)]
    alone, threads, process, processes = (mean(each) for each in zip(*rates, strict=True))
    _, waited = _processes(url, [*[_consume] * CONSUMERS, _write], "beside-a-writer")
    return [
        Figure(name=f"leases of {_RATE.size} trajectories, acknowledged: 1 thread", value=alone, unit="a second"),
        Figure(name=f"{CONSUMERS} threads, consumers of one name", value=threads, unit="a second"),
        Figure(name="1 process", value=process, unit="a second"),
        Figure(name=f"{CONSUMERS} processes, consumers of one name", value=processes, unit="a second"),
        Figure(name=f"{CONSUMERS} threads beside 1", value=threads / alone, unit="times", required=1),
        Figure(name=f"{CONSUMERS} processes beside 1", value=processes / process, unit="times", required=1),
        Figure(
            name=f"longest write of another process beside {CONSUMERS}, its wait for the lock included",
            value=waited,
            unit="ms",
            required=100,
            better="less",
        ),
    ]


def _threads(pool: Pool, count: int, consumer: str) -> float:
    """Leases a second of `count` threads that share a consumer's name."""
    _lease_once(pool, consumer)
    rates = [0.0] * count

    def work(number: int, until: float) -> None:
        rates[number] = _lease_until(pool, consumer, until)

    until = time.monotonic() + _SECONDS
    workers = [threading.Thread(target=work, args=(number, until)) for number in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(rates)


def _lease_once(pool: Pool, consumer: str) -> None:
    """Bring the backlog up to date, and compile and prepare what every lease and acknowledgement asks."""
    batch = pool.lease(_RATE, consumer)
    if batch is not None:
        pool.ack(batch.batch_id, batch.epoch)


def _lease_until(pool: Pool, consumer: str, until: float) -> float:
    """Leases a second, by the time in which there was something to lease: a small pool runs empty before `until`."""
    done, began = 0, time.monotonic()
    ended = began
    while time.monotonic() < until:
        batch = pool.lease(_RATE, consumer)
        if batch is None:
            break
        pool.ack(batch.batch_id, batch.epoch)
        done, ended = done + 1, time.monotonic()
    return done / (ended - began) if done else 0.0


def _processes(url: str, jobs: Sequence[_Job], consumer: str) -> tuple[float, float]:
    """Leases a second of processes with these jobs, which share a consumer's name, and the longest write of one of them
    in milliseconds.
    """
    context = multiprocessing.get_context("spawn")
    results: Queue[tuple[str, float]] = context.Queue()
    start = context.Barrier(len(jobs))
    workers = [context.Process(target=job, args=(url, consumer, start, results)) for job in jobs]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=120) for _ in workers]
    for worker in workers:
        worker.join()
    return (
        sum(value for kind, value in found if kind == "leases"),
        max((value for kind, value in found if kind == "write"), default=0.0),
    )


def _consume(url: str, consumer: str, start: threading.Barrier, results: Queue[tuple[str, float]]) -> None:
    pool = open_store(url)
    _lease_once(pool, consumer)
    start.wait(60)
    results.put(("leases", _lease_until(pool, consumer, time.monotonic() + _SECONDS)))
    pool.close()


def _write(url: str, consumer: str, start: threading.Barrier, results: Queue[tuple[str, float]]) -> None:
    pool = open_store(url)
    pool.set_paused(False)
    start.wait(60)
    until = time.monotonic() + _SECONDS
    longest = 0.0
    while time.monotonic() < until:
        begin = time.perf_counter()
        pool.set_paused(False)
        longest = max(longest, time.perf_counter() - begin)
        time.sleep(0.01)
    results.put(("write", longest * 1000))
    pool.close()
