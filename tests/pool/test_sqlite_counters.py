"""The counters of a SQLite pool, which its writing connection keeps from transaction to transaction."""

from __future__ import annotations

import collections
import contextlib
import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentworld.errors import PoolError
from agentworld.pool import open_store
from agentworld.pool.sqlite.counters import Counters

from .samples import step


@pytest.fixture
def pool(tmp_path):
    with contextlib.closing(open_store(f"sqlite:///{tmp_path}/pool.db")) as opened:
        yield opened


@pytest.fixture
def reads(pool):
    """The statements that read the counters in transactions of `pool`, as they come."""
    found = []
    pool._writer._session._raw.set_trace_callback(
        lambda text: found.append(text) if text.startswith("SELECT") and "FROM counters" in text else None
    )
    return found


def _is_right(pool):
    return list(pool.check()) == []


def test_they_are_read_once_while_nobody_else_writes(pool, reads):
    for _ in range(3):
        pool.append_steps([step("t")])
    assert set(collections.Counter(reads).values()) == {1}
    assert pool.stats().steps == 3
    assert _is_right(pool)


def test_they_are_read_again_after_another_has_written(pool, reads):
    with contextlib.closing(open_store(pool.url)) as other:
        for round in range(3):
            pool.append_steps([step("t")])
            assert set(collections.Counter(reads).values()) == {round + 1}
            other.append_steps([step("t"), step("u")])
        assert other.stats().steps == 9
    assert [event.sequence for event in pool.events()] == list(range(1, 12))
    assert _is_right(pool)


def test_they_are_read_again_after_a_transaction_that_failed(pool, reads):
    def fail(transaction):
        transaction.count("steps", 5)
        raise sqlite3.OperationalError("disk I/O error")

    pool.append_steps([step("t")])
    with pytest.raises(PoolError):
        pool._writer.submit(fail).result()
    pool.append_steps([step("t")])
    assert set(collections.Counter(reads).values()) == {2}
    assert pool.stats().steps == 2
    assert _is_right(pool)


def test_what_an_operation_counted_before_it_failed_is_not_kept(pool, reads):
    def refuse(transaction):
        transaction.count("steps", 5)
        raise ValueError("refused")

    pool.append_steps([step("t")])
    with pytest.raises(ValueError, match="refused"):
        pool._writer.submit(refuse).result()
    pool.append_steps([step("t")])
    assert set(collections.Counter(reads).values()) == {1}
    assert _is_right(pool)


_NAMES = st.sampled_from(["pk.a", "pk.b", "pk.c", "steps", "backlog:c", "pl.x"])


@given(
    begun=st.dictionaries(_NAMES, st.integers(0, 9)),
    rounds=st.lists(st.tuples(st.lists(_NAMES), st.dictionaries(_NAMES, st.integers(-5, 5)))),
)
def test_what_is_known_of_counters_is_what_the_table_holds(begun, rounds):
    with contextlib.closing(sqlite3.connect(":memory:")) as raw:
        raw.execute("CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER) WITHOUT ROWID")
        raw.executemany("INSERT INTO counters VALUES (?, ?)", begun.items())
        known, held = Counters(raw), dict(begun)
        for asked, changes in rounds:
            assert [known.get(name, 0) for name in asked] == [held.get(name, 0) for name in asked]
            for name, change in changes.items():
                held[name] = held.get(name, 0) + change
                raw.execute("INSERT OR REPLACE INTO counters VALUES (?, ?)", (name, held[name]))
            known.add(changes)
        assert {name: known.get(name, 0) for name in held} == held
