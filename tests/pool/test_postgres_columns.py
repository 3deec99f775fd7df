"""Columns of many rows, as one statement on PostgreSQL takes them."""

import math
import time

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.errors import PoolError
from agentworld.pool import open_store, schema
from agentworld.pool.postgres import session, writing
from agentworld.pool.postgres.columns import column, is_alike, one_for_all, register
from agentworld.pool.sql import append_rows
from agentworld.pool.sql.statements import Insertion
from tests.examples import examples

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


WRONG = [
    ("int8", 1.5, TypeError),
    ("int8", "1", TypeError),
    ("int8", 2**63, OverflowError),
    ("float8", "1", TypeError),
    ("text", "\ud800", UnicodeEncodeError),
]


@pytest.mark.parametrize(("kind", "wrong", "error"), WRONG)
@pytest.mark.parametrize("beside", [[], [None]])
def test_what_a_column_cannot_hold_is_refused(kind, wrong, error, beside):
    with pytest.raises(error):
        column(kind, [wrong, *beside])


@pytest.mark.parametrize(("kind", "values"), [(kind, values) for kind in COLUMNS for values in COLUMNS[kind]])
def test_a_value_of_all_rows_arrives_as_it_is(connection, kind, values):
    for value in values:
        [[found]] = connection.execute(f"SELECT %s::{kind}", [one_for_all(kind, value)]).fetchall()
        assert (found, str(found)) == (value, str(found) if value is None else str(type(found)(value)))


@pytest.mark.parametrize(("kind", "wrong", "error"), WRONG)
def test_nor_can_a_value_of_all_rows(kind, wrong, error):
    with pytest.raises(error):
        one_for_all(kind, wrong)


def test_values_that_are_equal_and_not_the_same_are_not_alike():
    assert is_alike("float8", [1.5, 1.5])
    assert is_alike("text", [None, None])
    assert is_alike("int8", [0, 0])
    assert not is_alike("float8", [0.0, -0.0])
    assert not is_alike("float8", [math.nan, 1.0, math.nan])
    assert not is_alike("int8", [1, None, 1])


def test_another_pool_may_add_texts_while_one_is_chosen():
    insertion = Insertion("t", ["a", "b"], ["int8", "int8"])

    class Adding(int):
        def __and__(self, other):
            insertion.text(2)
            return int(self) & other

    insertion._texts[Adding(1)] = ""
    assert writing._alike(insertion, [[1, 1], [2, 2]]) == 1


def test_columns_of_one_value_are_stored_as_any_other(postgres_pool, monkeypatch):
    monkeypatch.setattr(writing, "SENT_ROWS", 2)
    monkeypatch.setattr(writing, "MOST_ALIKE", 3)
    from .test_postgres_engine import EVENTS, write

    event = append_rows._insert(schema.events)
    values = {"kind": "ab", "at": (1.5, -0.0), "trajectory_id": ("é", None), "step_id": (None, ""), "data": "xy"}
    rows = []
    for number in range(64):  # Any columns alike, in turn: more texts than there may be.
        for last in (0, 1):
            row = [values[name][last * (number >> at & 1)] for at, name in enumerate(values)]
            rows.append((100 + 2 * number + last, *row, "channel"))
    for begin in range(0, len(rows), 2):
        write(postgres_pool, lambda txn, begin=begin: txn.many_in_order(event, rows[begin : begin + 2]))
    assert len(event.insertion.known) == 3 + 1  # and the one for any rows
    with postgres_pool._database.reading() as reader:
        found = [tuple(row[name] for name in event.names) for row in reader.execute(EVENTS)]
    assert [(*row, math.copysign(1, row[2])) for row in found] == [(*row, math.copysign(1, row[2])) for row in rows]


FEW = {
    "int8": st.none() | st.integers(-(2**63), 2**63 - 1),
    "float8": st.none() | st.floats(allow_nan=False),
    "text": st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=5),
    "bytea": st.none() | st.binary(max_size=5),
}


@st.composite
def tables(draw):
    """Rows of a number of their own and of columns that have one value or two, in the order of FEW."""
    count = draw(st.integers(2, 5))
    columns = []
    for kind in FEW.values():
        two = draw(st.lists(kind, min_size=1, max_size=2))
        columns.append(draw(st.lists(st.sampled_from(two), min_size=count, max_size=count)))
    return [(number, *row) for number, row in enumerate(zip(*columns, strict=True))]


@pytest.fixture(scope="module")
def scratch(postgres):
    """A connection with a table of one column of each type."""
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        register(connection)
        names = ", ".join(f"of_{kind} {kind}" for kind in FEW)
        connection.execute(f"CREATE TEMPORARY TABLE scratch (pk int8, {names})")
        yield connection, Insertion("scratch", ["pk", *(f"of_{kind}" for kind in FEW)], ["int8", *FEW])


@settings(max_examples=examples(400))
@given(tables())
def test_rows_are_the_same_whatever_columns_have_one_value(scratch, rows):
    connection, insertion = scratch
    columns = list(zip(*rows, strict=True))
    exact = [(*row, row[2] and math.copysign(1, row[2])) for row in rows]
    for alike in {0, writing._alike(insertion, columns)}:
        sent = [
            one_for_all(kind, values[0]) if alike >> place & 1 else column(kind, values)
            for place, (kind, values) in enumerate(zip(insertion.types, columns, strict=True))
        ]
        connection.execute("TRUNCATE scratch")
        connection.execute(insertion.text(alike), sent)
        found = connection.execute("SELECT * FROM scratch ORDER BY pk").fetchall()
        assert [(*row, row[2] and math.copysign(1, row[2])) for row in found] == exact


def test_rows_that_are_all_the_same_are_as_many_as_they_are(postgres_pool, monkeypatch):
    monkeypatch.setattr(writing, "SENT_ROWS", 2)
    from .test_postgres_engine import EVENT, write

    with pytest.raises(PoolError, match="duplicate key"):
        write(postgres_pool, lambda txn: txn.many_in_order(EVENT, [(100, "k", 1.0, None, None, None, None)] * 2))


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
