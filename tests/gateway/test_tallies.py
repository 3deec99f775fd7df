"""Counts that wait are never lost, and are there for whoever reads the metrics."""

from __future__ import annotations

import asyncio
import threading

import pytest
from prometheus_client import Counter, Gauge, Histogram

from agentworld.gateway import tallies
from agentworld.gateway.tallies import TalliedRegistry, Tallies


class Metrics:
    def __init__(self) -> None:
        self.tallies = Tallies()
        self.registry = TalliedRegistry(self.tallies)
        self.calls = Counter("calls", "Calls", ["kind"], registry=self.registry)
        self.running = Gauge("running", "Running", registry=self.registry)
        self.seconds = Histogram("seconds", "Seconds", registry=self.registry, buckets=(1, 2))

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


async def test_who_reads_has_all_that_came_before() -> None:
    metrics = Metrics()
    one, other = metrics.calls.labels("one"), metrics.calls.labels("other")
    for number in range(7):
        metrics.tallies.count(one)
        metrics.tallies.count(other, number)
        metrics.tallies.count(metrics.running, 1)
        metrics.tallies.count(metrics.running, -1 if number else 0)
        metrics.tallies.observe(metrics.seconds, number / 2)
    assert metrics.value("calls_total", kind="one") == 7
    assert metrics.value("calls_total", kind="other") == 21
    assert metrics.value("running") == 1
    assert (metrics.value("seconds_count"), metrics.value("seconds_sum")) == (7, 10.5)
    assert metrics.value("seconds_bucket", le="1.0") == 3
    assert metrics.value("calls_total", kind="one") == 7


async def test_what_nobody_reads_is_told_after_a_while_and_when_there_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tallies, "FLUSH_SECONDS", 0.0)
    metrics = Metrics()
    metrics.tallies.count(metrics.running, 3)
    await asyncio.sleep(0.01)
    assert metrics.running._value.get() == 3
    monkeypatch.setattr(tallies, "FLUSH_SECONDS", 3_600.0)
    monkeypatch.setattr(tallies, "MOST", 10)
    for _ in range(12):
        metrics.tallies.observe(metrics.seconds, 0.5)
    assert metrics.seconds._sum.get() >= 5


def test_what_an_ended_loop_left_is_told_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = Metrics()

    async def once(wait: float) -> None:
        metrics.tallies.count(metrics.running, 1)
        await asyncio.sleep(wait)

    asyncio.run(once(0.0))
    monkeypatch.setattr(tallies, "FLUSH_SECONDS", 0.0)
    asyncio.run(once(0.01))
    assert metrics.running._value.get() == 2


async def test_nothing_is_lost_or_counted_twice_beside_readers_in_threads() -> None:
    metrics = Metrics()
    going = True

    def read() -> None:
        while going:
            metrics.tallies.flush()

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for _ in range(5_000):
        metrics.tallies.count(metrics.running, 1)
        metrics.tallies.observe(metrics.seconds, 1.0)
    going = False
    for reader in readers:
        reader.join()
    assert metrics.value("running") == 5_000
    assert metrics.value("seconds_count") == 5_000
