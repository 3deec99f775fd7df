"""Who writes alone is never kept waiting, and who writes with many shares transactions with them."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from agentworld.pool import open_store
from agentworld.pool.sql import writer
from agentworld.pool.sql.lingering import FIRST_LOOK, LAST_LOOK, LEAST_OPERATIONS, MOST_STEPS, REMEMBERED, Lingering


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
    assert steps(rule, [1] * 64) == 1
    assert steps(rule, [1, 2, 3, 3, 4]) == 3


def test_it_expects_as_many_as_the_largest_of_the_latest_transactions() -> None:
    rule = Lingering()
    rule.wrote(64)
    for _ in range(REMEMBERED - 1):
        rule.wrote(1)
    assert steps(rule, [9, 19]) == 2
    rule.wrote(1)
    assert steps(rule, [9, 19]) == 0


def waited_for_more(rule: Lingering, together: int, transactions: int) -> list[int]:
    """The transactions that waited for more than `together`, where so many always come, by their numbers."""
    waited = []
    for number in range(transactions):
        if steps(rule, [together, together]):
            waited.append(number)
        rule.wrote(together)
    return waited


def test_it_looks_for_more_ever_more_rarely_while_no_more_come() -> None:
    rule = Lingering()
    rule.wrote(16)
    waited = waited_for_more(rule, 16, 2_000)
    gaps = [later - earlier for earlier, later in itertools.pairwise(waited)]
    assert waited[0] == FIRST_LOOK
    assert gaps[:4] == [2 * FIRST_LOOK + 1, 4 * FIRST_LOOK + 1, 8 * FIRST_LOOK + 1, 16 * FIRST_LOOK + 1]
    assert set(gaps[4:]) == {LAST_LOOK + 1}


def test_what_comes_when_it_looks_is_expected_from_then_on() -> None:
    rule = Lingering()
    rule.wrote(8)
    assert waited_for_more(rule, 8, FIRST_LOOK + 1) == [FIRST_LOOK]
    rule.wrote(12)
    assert steps(rule, [9, 11, 12]) == 2


def test_it_never_looks_for_more_among_few() -> None:
    rule = Lingering()
    assert waited_for_more(rule, LEAST_OPERATIONS - 1, 500) == []


def test_writes_that_come_one_by_one_from_many_share_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[int] = []
    write = writer.Writer._write

    def counted(self: Any, waiting: list[Any]) -> int:
        groups.append(write(self, waiting))
        return groups[-1]

    monkeypatch.setattr(writer.Writer, "_write", counted)
    monkeypatch.setattr(writer, "STEP_SECONDS", 30.0)  # It does not wait for its end where all are there.
    with contextlib.closing(open_store(f"sqlite:///{tmp_path / 'pool.db'}")) as pool:
        begun, held = threading.Event(), threading.Event()
        first = pool._writer.submit(lambda transaction: begun.set() or held.wait())  # type: ignore[attr-defined, func-returns-value]
        assert begun.wait(30)  # What comes from here on is not in its transaction.
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
