"""The engine under the shared statements: rows, savepoints, many rows at once, values, limits."""

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
from psycopg.errors import DataError, DivisionByZero, OperationalError, UniqueViolation
from sqlalchemy import func, insert, literal, select, text, update

from agentworld.errors import ConflictError, InvalidRequestError, PoolError
from agentworld.pool import schema
from agentworld.pool.postgres import PostgresPool, writing
from agentworld.pool.postgres import connection as engine
from agentworld.pool.sql.connections import SearchTimeoutError
from agentworld.pool.sql.group_time import GroupTime
from agentworld.pool.sql.statements import compiled, parameter, sql
from agentworld.records import BatchSpec

from .samples import ids, step, writer_held

_c, _e = schema.counters, schema.events
ADD = sql(insert(_c).values(name=parameter("name"), value=parameter("value")))
SET = sql(update(_c).where(_c.c.name == parameter("of")).values(value=parameter("value")))
MINE = sql(select(_c.c.name, _c.c.value).where(_c.c.name.like(parameter("like"))).order_by(_c.c.name))
EVENT = sql(insert(_e).values({column.name: parameter(column.name) for column in _e.c}))
EVENTS = sql(select(_e).order_by(_e.c.pk))


def mine(pool):
    with pool._database.reading() as reader:
        return {row["name"]: row["value"] for row in reader.execute(MINE, {"like": "x%"})}


def write(pool, operation):
    return pool._writer.submit(operation).result(100)


def add(txn, name, value=1):
    txn.execute(ADD, {"name": name, "value": value})


def test_rows_are_read_by_name_and_by_position(postgres_pool):
    write(postgres_pool, lambda txn: [add(txn, "x1", 5), add(txn, "x2", 2**62)])
    with postgres_pool._database.reading() as reader:
        first, second = reader.execute(MINE, {"like": "x%"})
        assert (first["name"], first[0], first["value"], first[-1]) == ("x1", "x1", 5, 5)
        assert (tuple(second), list(second.keys())) == (("x2", 2**62), ["name", "value"])
        with pytest.raises(KeyError):
            first["other"]


def test_what_an_operation_wrote_is_undone_with_all_that_it_nested(postgres_pool):
    def outer(txn):
        add(txn, "x-outer")
        with pytest.raises(ConflictError):
            txn.run(fails)
        txn.run(lambda inner: add(inner, "x-kept"))
        txn.run(lambda inner: None)
        assert txn.probe(lambda inner: add(inner, "x-probe") or len(inner.execute(MINE, {"like": "x%"}))) == 3
        raise ConflictError("no")

    def fails(txn):
        add(txn, "x-inner")
        txn.run(lambda inner: add(inner, "x-innermost"))
        raise ConflictError("no")

    with pytest.raises(ConflictError):
        write(postgres_pool, outer)
    assert mine(postgres_pool) == {}
    write(postgres_pool, lambda txn: txn.run(lambda inner: add(inner, "x")))
    assert mine(postgres_pool) == {"x": 1}


def test_a_statement_that_fails_harms_nothing_outside_its_operation(postgres_pool):
    def operation(txn):
        add(txn, "x-before")
        for bad in ({"name": "x\0", "value": 1}, {"name": "x", "value": 2**63}, {"name": "\ud800", "value": 1}):
            with pytest.raises((DataError, OverflowError, UnicodeEncodeError)) as caught:
                txn.run(lambda inner, bad=bad: [add(inner, "x-beside"), inner.execute(ADD, bad)])
            assert postgres_pool._database.as_value_error(caught.value) is not None
        # The server refuses this one; the transaction goes on from the savepoint.
        with pytest.raises(UniqueViolation):
            txn.run(lambda inner: add(inner, "x-before"))
        add(txn, "x-after")

    write(postgres_pool, operation)
    assert mine(postgres_pool) == {"x-before": 1, "x-after": 1}


@pytest.mark.parametrize("count", [1, 3, 5, 40])
@pytest.mark.parametrize("bad", ["x\0", 2**63, "\ud800"])
def test_values_that_postgresql_cannot_hold_are_the_callers_fault(postgres_pool, count, bad):
    rows = [{"name": f"x{number}", "value": number} for number in range(count)]
    rows[-1]["value" if isinstance(bad, int) else "name"] = bad
    good = postgres_pool.submit_steps([step("t", step_id="a")])
    with pytest.raises(InvalidRequestError):
        write(postgres_pool, lambda txn: txn.many(ADD, rows))
    assert good.result()[0].outcome == "stored"
    assert mine(postgres_pool) == {}


@pytest.mark.parametrize("count", [1, 3, 40])
def test_many_rows_are_stored_as_one_by_one(postgres_pool, count):
    texts = ["plain", "tab\tnew\nline\\N", "", "é😀", None]
    rows = [
        {
            "pk": 100 + number,
            "kind": texts[number % 4],
            "at": [1.5, -0.0, 1e308, 5e-324, 3][number % 5],
            "trajectory_id": texts[number % 5],
            "step_id": None,
            "data": texts[-number % 5],
            "channel": texts[number % 3],
        }
        for number in range(count)
    ]
    write(postgres_pool, lambda txn: txn.many(EVENT, rows))
    with postgres_pool._database.reading() as reader:
        found = [dict(zip(row.keys(), row, strict=True)) for row in reader.execute(EVENTS)]
    assert found == rows
    assert [math.copysign(1, row["at"]) for row in found] == [math.copysign(1, row["at"]) for row in rows]


def test_many_other_statements_run_in_order(postgres_pool):
    write(postgres_pool, lambda txn: txn.many(ADD, [{"name": f"x{number}", "value": 0} for number in range(5)]))
    changes = [{"of": f"x{number % 5}", "value": number} for number in range(12)]
    write(postgres_pool, lambda txn: txn.many(SET, changes))
    assert mine(postgres_pool) == {"x0": 10, "x1": 11, "x2": 7, "x3": 8, "x4": 9}


def test_insertions_of_parameters_alone_take_columns():
    assert EVENT.insertion.text(0).startswith("INSERT INTO events (pk, kind, at,")
    assert EVENT.insertion.types == ["int8", "text", "float8", "text", "text", "text", "text"]
    constant = sql(insert(_c).values(name=parameter("name"), value=1))
    assert [statement.insertion for statement in (constant, SET, MINE)] == [None] * 3


def asked_alone(pool, monkeypatch):
    """The statements that go to the server by themselves from now on, as counted by the connections."""
    alone = []
    ask = engine.PostgresConnection._ask

    def counted(self, statement, parameters):
        alone.append(parameters.get("like"))
        return ask(self, statement, parameters)

    monkeypatch.setattr(engine.PostgresConnection, "_ask", counted)
    return alone


def test_what_was_foreseen_is_asked_once_and_given_as_long_as_nothing_was_written(postgres_pool, monkeypatch):
    alone = asked_alone(postgres_pool, monkeypatch)
    asked = [(MINE, {"like": like}) for like in ("x%", "y%", "z%")]

    def operation(txn):
        add(txn, "x-waits")  # It goes along, before what is asked.
        txn.connection.foresee(asked)
        assert [len(txn.execute(*one)) for one in asked[:2]] == [1, 0]
        assert alone == []
        assert len(txn.execute(*asked[0])) == 1  # Given once.
        assert alone == ["x%"]
        add(txn, "z-later")
        assert len(txn.execute(*asked[2])) == 1
        txn.connection.foresee(asked)
        with pytest.raises(ConflictError):
            txn.run(lambda inner: [add(inner, "y"), refuse()])
        assert len(txn.execute(*asked[1])) == 0

    def refuse():
        raise ConflictError("no")

    write(postgres_pool, operation)
    with postgres_pool._database.reading() as reader:
        reader.foresee(asked)
        alone.clear()
        assert [len(reader.execute(*one)) for one in asked] == [1, 0, 1]
        assert alone == []
        reader.foresee(asked)
    write(postgres_pool, lambda txn: add(txn, "y-too"))
    with postgres_pool._database.reading() as reader:
        assert len(reader.execute(*asked[1])) == 1


def test_what_was_foreseen_goes_with_a_read_that_fails_after_its_commit(postgres_pool):
    asked = [(MINE, {"like": like}) for like in ("x%", "y%")]
    with pytest.raises(LookupError), postgres_pool._database.reading() as reader:
        reader.foresee(asked)
        reader.command("COMMIT")
        raise LookupError
    write(postgres_pool, lambda txn: add(txn, "x"))
    assert mine(postgres_pool) == {"x": 1}


def test_a_fault_in_what_was_foreseen_leaves_the_transaction_to_others(postgres_pool):
    bad = (compiled(select(literal(1) / func.length(literal("")))), {})

    def operation(txn):
        add(txn, "x")
        with pytest.raises(DivisionByZero):
            txn.run(lambda inner: inner.connection.foresee([(MINE, {"like": "x%"}), bad]))
        assert len(txn.execute(MINE, {"like": "x%"})) == 1

    write(postgres_pool, operation)
    assert mine(postgres_pool) == {"x": 1}


def test_a_fault_in_what_was_trusted_ends_the_transaction_for_everyone_in_it(postgres_pool, monkeypatch):
    monkeypatch.setattr(GroupTime, "after_waiting", lambda *_: 60.0)  # So that all of them are in one transaction.

    def trusted(txn):
        txn.connection.trust()
        add(txn, "x-trusted")
        txn.execute(ADD, {"name": "x-trusted", "value": 2})  # A fault, once it is sent.

    for after in ([], [lambda txn: add(txn, "x-after")]):
        with writer_held(postgres_pool):
            before = postgres_pool._writer.submit(lambda txn: add(txn, "x-before"))
            futures = [before, *(postgres_pool._writer.submit(one) for one in (trusted, *after))]
        for future in futures:
            with pytest.raises(PoolError):
                future.result(100)
        assert mine(postgres_pool) == {}
    write(postgres_pool, lambda txn: [txn.connection.trust(), add(txn, "x")])
    assert mine(postgres_pool) == {"x": 1}


def test_a_search_that_takes_too_long_leaves_its_transaction_usable(postgres_pool):
    slow = compiled(select(func.pg_sleep(literal(30))))
    write(postgres_pool, lambda txn: add(txn, "x"))
    with postgres_pool._database.reading() as reader:
        with pytest.raises(SearchTimeoutError), reader.limited(0.05):
            reader.execute(slow)
        with pytest.raises(SearchTimeoutError), reader.limited(0.0):
            reader.execute(MINE, {"like": "x%"})
        with reader.limited(60):
            assert len(reader.execute(MINE, {"like": "x%"})) == 1
        assert reader.execute(compiled(text("SHOW statement_timeout")))[0][0] == "0"

    def searches(txn):
        add(txn, "x-too")
        with pytest.raises(SearchTimeoutError), txn.connection.limited(0.05):
            txn.execute(slow)
        add(txn, "x-after")

    write(postgres_pool, searches)
    assert set(mine(postgres_pool)) == {"x", "x-too", "x-after"}


def test_statements_of_a_limited_search_share_its_time(postgres_pool, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(engine.time, "monotonic", lambda: now[0])
    shown = compiled(text("SHOW statement_timeout"))
    with postgres_pool._database.reading() as reader, pytest.raises(SearchTimeoutError), reader.limited(5.0):
        assert reader.execute(shown)[0][0] == "5s"
        now[0] += 4
        assert reader.execute(shown)[0][0] == "1s"
        now[0] += 1
        reader.execute(shown)


def test_a_reader_is_not_in_the_writers_way(postgres_pool):
    with postgres_pool._database.reading() as reader:
        assert reader.execute(MINE, {"like": "x%"}) == []
        write(postgres_pool, lambda txn: add(txn, "x"))
        # The transaction still sees the state that it began with.
        assert reader.execute(MINE, {"like": "x%"}) == []
    assert mine(postgres_pool) == {"x": 1}


def test_a_reader_writes_nothing(postgres_pool):
    with pytest.raises(PoolError, match="read"), postgres_pool._database.reading() as reader:
        reader.execute(ADD, {"name": "x", "value": 1})
    assert mine(postgres_pool) == {}


def test_a_fault_of_the_caller_does_not_cost_the_connection(postgres_pool):
    for _ in range(3):
        with pytest.raises(LookupError), postgres_pool._database.reading():
            raise LookupError
    idle = list(postgres_pool._database._idle)
    assert len(idle) == 1
    assert ids(postgres_pool.list_steps()) == []
    assert postgres_pool._database._idle == idle


def test_a_writer_that_waits_too_long_for_the_lock_says_so(postgres_url):
    holder, waiter = PostgresPool(postgres_url), PostgresPool(postgres_url, lock_seconds=0.05)

    def meanwhile(txn):
        with pytest.raises(PoolError, match="held by another writer") as caught:
            waiter.append_steps([step("t", step_id="a")])
        assert "pg_locks" in caught.value.hint

    write(holder, meanwhile)
    assert waiter.append_steps([step("t", step_id="a")])[0].outcome == "stored"
    holder.close()
    waiter.close()


def test_a_commit_whose_answer_is_lost_says_that_it_may_have_been_written(postgres_pool, monkeypatch):
    sent = step("t", step_id="a", prompt_ids=list(range(300)))
    commit = writing.WritingConnection.commit

    def lost(self, *texts):
        assert commit(self, *texts) == "COMMIT"
        raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(writing.WritingConnection, "commit", lost)
    with pytest.raises(PoolError, match="may have been written") as caught:
        postgres_pool.append_steps([sent])
    assert "again" in caught.value.hint
    monkeypatch.undo()
    # It was; sent again it is the same step, whose pieces are looked for and not taken to be missing.
    assert postgres_pool.append_steps([sent])[0].outcome == "duplicate"
    assert postgres_pool.append_steps([step("t", step_id="b", prompt_ids=list(range(300)))])[0].step_index == 1
    assert postgres_pool.get_step("b").prompt_ids == list(range(300))


def test_consumers_wait_for_one_another_and_writers_for_none_of_those(postgres_url):
    consumers, writer = PostgresPool(postgres_url), PostgresPool(postgres_url)
    writer.append_steps([step("t", step_id="a")])
    writer.complete_trajectory("t", "finished")
    waits = compiled(text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))
    with ThreadPoolExecutor(1) as pool, writer._database.reading() as other:
        # As another consumer that is at work, or that waits for the lock itself.
        other.command(f"SELECT pg_advisory_xact_lock({writer._database.patient_key})")
        leased = pool.submit(consumers.lease, BatchSpec(unit="trajectory", size=1, require=("messages",)), "c")
        while not other.execute(waits)[0][0]:
            assert not leased.done()
        assert writer.append_steps([step("u", step_id="b")])[0].outcome == "stored"
        assert not leased.done()
    assert leased.result().items
    consumers.close()
    writer.close()


def test_what_came_while_a_writer_waited_for_the_lock_goes_along(postgres_url):
    holder, waiter = PostgresPool(postgres_url), PostgresPool(postgres_url)

    def meanwhile(txn):
        first = waiter.submit_steps([step("t", step_id="s0")])
        waits = compiled(text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))
        while not txn.execute(waits)[0][0]:
            pass
        txn.execute(compiled(text("SELECT pg_sleep(0.05)")))
        return [first, *(waiter.submit_steps([step("t", step_id=f"s{number}")]) for number in range(1, 5))]

    futures = write(holder, meanwhile)
    assert [future.result(100)[0].outcome for future in futures] == ["stored"] * 5
    assert waiter._writer._session.waited > 0.05
    # One transaction has one time.
    assert len({event.at for event in holder.events() if event.kind == "step.appended"}) == 1
    holder.close()
    waiter.close()
