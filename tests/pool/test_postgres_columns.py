"""Columns of many rows, as one statement on PostgreSQL takes them."""

import math
import time

import psycopg
import pytest

from agentworld.errors import PoolError
from agentworld.pool import open_store
from agentworld.pool.postgres import session, writing
from agentworld.pool.postgres.columns import column, register

COLUMNS = {
    "int8": [[1, 2, -(2**63), 2**63 - 1], [None, 7, None, 0], [None] * 3, [5] * 3, [1]],
    "float8": [[0.0, -0.0, 1e308, 5e-324], [3, None, -1.5], [None] * 2, [math.inf, 1.0]],
    "text": [["a", "bb", ""], ["é😀", None, "tab\tnew\nline\\N"], ["same"] * 3, [None] * 2, ["", None]],
    "bytea": [[b"ab", b"cd"], [b"a", b"", b"\0\xff"], [None, b"x"], [None] * 2],
}


@pytest.fixture
def connection(postgres):
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        register(connection)
        yield connection


@pytest.mark.parametrize(("kind", "values"), [(kind, values) for kind in COLUMNS for values in COLUMNS[kind]])
def test_a_column_arrives_as_it_is(connection, kind, values):
    found = connection.execute(f"SELECT * FROM unnest(%s::{kind}[])", [column(kind, values)]).fetchall()
    assert [row[0] for row in found] == values
    if kind == "float8":
        signs = [[value and math.copysign(1, value) for value in each] for each in (values, [row[0] for row in found])]
        assert signs[0] == signs[1]


@pytest.mark.parametrize(
    ("kind", "wrong", "error"),
    [
        ("int8", 1.5, TypeError),
        ("int8", "1", TypeError),
        ("int8", 2**63, OverflowError),
        ("float8", "1", TypeError),
        ("text", "\ud800", UnicodeEncodeError),
    ],
)
@pytest.mark.parametrize("beside", [[], [None]])
def test_what_a_column_cannot_hold_is_refused(kind, wrong, error, beside):
    with pytest.raises(error):
        column(kind, [wrong, *beside])


def test_rows_that_are_too_many_for_one_statement_go_in_several(postgres_pool, monkeypatch):
    monkeypatch.setattr(writing, "MOST_ROWS", 3)
    monkeypatch.setattr(writing, "MOST_BYTES", 1500)
    from .test_postgres_engine import EVENT, EVENTS, write

    rows = [(100 + number, "k" * (200 * (number % 4)), 1.0, None, None, None, None) for number in range(23)]
    names = EVENT.names
    write(postgres_pool, lambda txn: txn.many_in_order(EVENT, rows))
    with postgres_pool._database.reading() as reader:
        assert [tuple(row[name] for name in names) for row in reader.execute(EVENTS)] == rows


def test_a_fault_in_rows_that_were_sent_ahead_is_that_of_their_operation(postgres_pool, monkeypatch):
    monkeypatch.setattr(writing, "SENT_ROWS", 2)
    from .test_postgres_engine import EVENT, EVENTS, add, mine, write

    def rows(first):
        return [(pk, "kind", 1.0, None, None, None, None) for pk in range(first, first + 5)]

    def operation(txn):
        txn.many_in_order(EVENT, rows(100))
        with pytest.raises(psycopg.errors.UniqueViolation):
            txn.run(lambda inner: [add(inner, "x-undone"), inner.many_in_order(EVENT, rows(102))])
        with pytest.raises(LookupError):  # Ours, before the server's answer is heard.
            txn.run(lambda inner: [inner.many_in_order(EVENT, rows(200)), {}["nothing"]])
        txn.run(lambda inner: [add(inner, "x"), inner.many_in_order(EVENT, rows(300))])
        return [row["pk"] for row in txn.execute(EVENTS)]

    assert write(postgres_pool, operation) == [*range(100, 105), *range(300, 305)]
    assert mine(postgres_pool) == {"x": 1}
    with pytest.raises(LookupError):
        write(postgres_pool, lambda txn: [txn.many_in_order(EVENT, rows(400)), {}["nothing"]])
    write(postgres_pool, lambda txn: add(txn, "x-after"))
    assert mine(postgres_pool) == {"x": 1, "x-after": 1}


def test_a_fault_in_rows_that_were_sent_ahead_is_not_that_of_what_is_nested_after_them(postgres_pool, monkeypatch):
    monkeypatch.setattr(writing, "SENT_ROWS", 2)
    from .test_postgres_engine import EVENT, add, mine, write

    row = (100, "kind", 1.0, None, None, None, None)

    def outer(txn):
        txn.many_in_order(EVENT, [row, row])
        txn.run(lambda inner: {}["nothing"])

    def operation(txn):
        with pytest.raises(psycopg.errors.UniqueViolation):
            txn.run(outer)
        add(txn, "x")

    write(postgres_pool, operation)
    assert mine(postgres_pool) == {"x": 1}


def test_the_server_ends_a_transaction_whose_process_stops_after_rows_were_sent_ahead(postgres, monkeypatch):
    monkeypatch.setattr(writing, "SENT_ROWS", 2)
    monkeypatch.setattr(session, "IDLE_SECONDS", 0.3)
    from .test_postgres_engine import EVENT, add, mine, write

    url = postgres.url()
    pool = open_store(url)

    def stops(txn):
        txn.many_in_order(EVENT, [(pk, "kind", 1.0, None, None, None, None) for pk in range(100, 105)])
        mine_there = txn.connection.raw.info.backend_pid
        until = time.monotonic() + 30
        with psycopg.connect(url, autocommit=True) as other:
            while other.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", [mine_there]).fetchone():
                assert time.monotonic() < until, "the server still waits"
                time.sleep(0.05)

    with pytest.raises(PoolError):
        write(pool, stops)
    write(pool, lambda txn: add(txn, "x-after"))
    assert mine(pool) == {"x-after": 1}
    pool.close()
