"""Who writes alone is never kept waiting, and who writes with many shares transactions with them."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from agentworld.pool import open_store
from agentworld.pool.sql import lingering, writer
from agentworld.pool.sql.lingering import LEAST_OPERATIONS, MOST_STEPS, QUIET_STEPS, Lingering


def steps(rule: Lingering, waiting: list[int]) -> int:
    """How many steps the rule waits while so many operations wait, one number after each step."""
    rule.begin(waiting[0])
    for taken, number in enumerate(waiting):
        if not rule.goes_on(number):
            return taken
    return len(waiting)


@pytest.mark.parametrize("lately", range(LEAST_OPERATIONS))
def test_few_writers_wait_for_nobody(lately: int) -> None:
    rule = Lingering()
    rule.wrote(lately)
    assert steps(rule, [1, 2, 3, 4]) == 0


def test_among_many_it_waits_while_others_come_until_all_are_there() -> None:
    rule = Lingering()
    rule.wrote(64)
    assert steps(rule, [64]) == 0
    assert steps(rule, [1, 9, 64, 65]) == 2
    assert steps(rule, list(range(1, 64))) == MOST_STEPS
    assert steps(rule, [1] * 64) == QUIET_STEPS
    once = [1] * QUIET_STEPS + [2] * 64  # One came in the last step in which it waits for one.
    assert steps(rule, once) == 2 * QUIET_STEPS
    rule.wrote(1)
    assert steps(rule, [1]) == 0


def test_writes_that_come_one_by_one_from_many_share_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[int] = []
    write = writer.Writer._write

    def counted(self: Any, waiting: list[Any]) -> int:
        groups.append(write(self, waiting))
        return groups[-1]

    monkeypatch.setattr(writer.Writer, "_write", counted)
    monkeypatch.setattr(lingering, "MOST_STEPS", 10_000)
    monkeypatch.setattr(lingering, "QUIET_STEPS", 10_000)
    with contextlib.closing(open_store(f"sqlite:///{tmp_path / 'pool.db'}")) as pool:
        held = threading.Event()
        first = pool._writer.submit(lambda transaction: held.wait())  # type: ignore[attr-defined]
        futures: list[Future[Any]] = [
            pool._writer.submit(lambda transaction, number=number: number)  # type: ignore[attr-defined]
            for number in range(8)
        ]
        held.set()
        assert first.result()
        assert [future.result() for future in futures] == list(range(8))
        groups.clear()
        # Eight were written together, so that the first of these waits for the others.
        for number in range(8):
            futures[number] = pool._writer.submit(lambda transaction, number=number: number)  # type: ignore[attr-defined]
            time.sleep(0.002)
        assert [future.result() for future in futures] == list(range(8))
        assert groups == [8]
