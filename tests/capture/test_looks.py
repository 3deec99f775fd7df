"""Looks at the pool from the event loop, and from threads where they could hold it up."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from agentworld.capture.looks import SLOW_LOOKS, SLOW_SECONDS, SPARED_SECONDS, Looks


class _PoolAt:
    def __init__(self, url: str) -> None:
        self.url = url


@pytest.mark.parametrize(("url", "at_once"), [("sqlite:///a.db", True), ("memory://", True), ("postgresql://h", False)])
async def test_only_a_server_elsewhere_is_looked_at_from_threads(url: str, at_once: bool) -> None:
    pool: Any = _PoolAt(url)
    where = await Looks(pool).of(lambda name: (name, threading.current_thread()), "t1")
    assert where[0] == "t1"
    assert (where[1] is threading.main_thread()) is at_once


async def test_after_slow_looks_threads_take_over_for_a_while() -> None:
    now = [100.0]
    pool: Any = _PoolAt("sqlite:///a.db")
    looks = Looks(pool, clock=lambda: now[0])

    def slow(name: str) -> None:
        now[0] += 2 * SLOW_SECONDS
        raise KeyError(name)

    for _ in range(SLOW_LOOKS):
        assert looks.at_once
        with pytest.raises(KeyError):
            await looks.of(slow, "t1")
    assert not looks.at_once
    assert await looks.of(lambda name: threading.current_thread(), "t1") is not threading.main_thread()
    now[0] += SPARED_SECONDS
    assert looks.at_once
