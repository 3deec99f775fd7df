"""How much of what waits goes into one transaction of the writing thread."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from agentworld.factory import open_pool
from agentworld.pool.sql import group_time, writer
from agentworld.pool.sql.group_time import (
    ALONE_AFTER,
    ALONE_SECONDS,
    FAIR_WAIT,
    GROUP_SECONDS,
    LEAST_GROUP_SECONDS,
    GroupTime,
)


def test_who_is_let_in_at_once_again_and_again_takes_more_until_somebody_was_before():
    group = GroupTime()
    assert [group.after_waiting(0.0) for _ in range(ALONE_AFTER + 1)] == [
        *[GROUP_SECONDS] * (ALONE_AFTER - 1),
        ALONE_SECONDS,
        ALONE_SECONDS,
    ]
    assert [group.after_waiting(0.01), group.after_waiting(0.0)] == [GROUP_SECONDS] * 2


@pytest.mark.parametrize(("waits", "share"), [(1, 1), (2, 0.5), (4, 0.25)])
def test_who_waits_long_for_its_turn_takes_less(waits, share):
    assert GroupTime().after_waiting(FAIR_WAIT * waits) == pytest.approx(GROUP_SECONDS * share)
    assert GroupTime().after_waiting(FAIR_WAIT * 10**6) == LEAST_GROUP_SECONDS


def test_the_writing_thread_keeps_to_it(tmp_path, monkeypatch):
    monkeypatch.setattr(group_time, "_AT_ONCE", 100.0)  # However slow the machine is, nobody else has this lock.
    clock = [0.0]
    monkeypatch.setattr(writer, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    pool = open_pool(f"sqlite:///{tmp_path}/pool.db")

    def in_first_transaction():
        """Of nine operations of 10 ms each that wait together."""
        inside, gate, transactions = threading.Event(), threading.Event(), []

        def operation(transaction):
            transactions.append(transaction)
            clock[0] += 0.01

        first = pool._writer.submit(lambda _: [inside.set(), gate.wait(100)])
        assert inside.wait(100)
        behind = [pool._writer.submit(operation) for _ in range(9)]
        gate.set()
        for future in (first, *behind):
            future.result(100)
        return sum(one is transactions[0] for one in transactions)

    try:
        few = in_first_transaction()
        while pool._writer._group_time._let_in < ALONE_AFTER:
            pool._writer.submit(lambda _: None).result(100)
        assert (few, in_first_transaction()) == (3, 7)
    finally:
        pool.close()
