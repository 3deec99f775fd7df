"""A full disk, files that are no pools, and what a rollback undoes."""

import contextlib
import shutil
import sqlite3
import threading
from types import SimpleNamespace

import pytest

from agentworld.errors import ConflictError, NotFoundError, PoolError, PoolFullError, QueryError
from agentworld.pool.sqlite import SqlitePool
from agentworld.records import BatchSpec, NewTrajectory

from .samples import finished, ids, step


def limit_pages(pool, pages):
    """Let the file grow to `pages` pages; sqlite reports a full disk beyond."""
    return pool._writer.submit(
        lambda txn: txn.connection.raw.execute(f"PRAGMA max_page_count = {pages}").fetchone()[0]
    ).result()


def test_a_full_disk_is_a_clear_error_and_the_pool_goes_on_after(sqlite_pool):
    sqlite_pool.append_steps([step("t", step_id="before")])
    kept, stats = sqlite_pool.get_step("before"), sqlite_pool.stats()
    limit_pages(sqlite_pool, 1)  # The file's present size is the least that sqlite takes.
    big = step("t", step_id="big", prompt_ids=list(range(200_000)), response_ids=[1, 2])
    with pytest.raises(PoolFullError) as caught:
        sqlite_pool.append_steps([big])
    assert caught.value.status == 507
    assert "Free space" in caught.value.hint
    assert (sqlite_pool.stats(), ids(sqlite_pool.list_steps())) == (stats, ["before"])
    assert sqlite_pool.get_step("before") == kept
    limit_pages(sqlite_pool, 1_000_000)
    assert sqlite_pool.append_steps([big])[0].outcome == "stored"
    assert sqlite_pool.get_step("big").prompt_ids == big.prompt_ids
    assert sqlite_pool.get_step("big").step_index == 1


def test_a_disk_without_room_is_seen_before_a_step_finds_none(sqlite_pool, monkeypatch):
    sqlite_pool.check_writable()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(PoolFullError, match="no space is left"):
        sqlite_pool.check_writable()


def test_a_disk_that_does_not_say_how_full_it_is_is_a_fault_of_the_pool(sqlite_pool, monkeypatch):
    def fails(path):
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(shutil, "disk_usage", fails)
    with pytest.raises(PoolError, match="cannot be read: No such file"):
        sqlite_pool.check_writable()


def test_a_pool_that_can_only_be_read_says_so(sqlite_pool, monkeypatch):
    def fails(txn, *_):
        raise PoolError("attempt to write a readonly database")

    monkeypatch.setattr("agentworld.pool.sql.transaction.Transaction.count", fails)
    with pytest.raises(PoolError, match="readonly"):
        sqlite_pool.check_writable()


def test_an_operation_that_fails_harms_no_other_in_its_transaction(sqlite_pool):
    gate = threading.Event()
    blocked = sqlite_pool._writer.submit(lambda txn: gate.wait(100))
    sqlite_pool_writer = sqlite_pool._writer

    def fails(txn):
        txn.connection.raw.execute("INSERT INTO counters VALUES ('rest', 1)")
        raise ConflictError("no")

    futures = [sqlite_pool.submit_steps([step("t", step_id="a")]), sqlite_pool_writer.submit(fails)]
    futures.append(sqlite_pool.submit_steps([step("t", step_id="b")]))
    gate.set()
    assert blocked.result() is True
    assert futures[0].result()[0].outcome == "stored"
    with pytest.raises(ConflictError):
        futures[1].result()
    assert futures[2].result()[0].step_index == 1
    with sqlite3.connect(sqlite_pool.path) as connection:
        assert connection.execute("SELECT count(*) FROM counters WHERE name = 'rest'").fetchone() == (0,)


def test_operations_that_fail_before_and_after_others_leave_nothing(sqlite_pool):
    def counts(name, fails=False, inner=()):
        def operation(txn):
            txn.connection.raw.execute("INSERT INTO counters VALUES (?, 1)", (name,))
            for one in inner:
                with contextlib.suppress(ConflictError):
                    txn.run(one)
            if fails:
                raise ConflictError("no")

        return operation

    def only_runs(txn):  # Its first statement is that of an operation inside it, which fails.
        for one in (counts("g", fails=True), counts("h"), counts("i", fails=True)):
            with contextlib.suppress(ConflictError):
                txn.run(one)

    gate = threading.Event()
    blocked = sqlite_pool._writer.submit(lambda txn: gate.wait(100))  # Changes nothing.
    operations = [
        counts("a", fails=True),
        counts("b"),
        counts("c", fails=True, inner=[counts("d")]),
        counts("e", inner=[counts("f", fails=True)]),
        only_runs,
    ]
    futures = [sqlite_pool._writer.submit(operation) for operation in operations]
    gate.set()
    assert blocked.result() is True
    failed = [future.exception() is not None for future in futures]
    assert failed == [True, False, True, False, False]
    alone = sqlite_pool._writer.submit(only_runs)
    assert isinstance(alone.exception(), sqlite3.IntegrityError | PoolError)  # Its `h` is there already.
    with sqlite3.connect(sqlite_pool.path) as connection:
        named = connection.execute("SELECT name FROM counters WHERE length(name) = 1 ORDER BY name").fetchall()
    assert named == [("b",), ("e",), ("h",)]


def test_what_a_rollback_undid_is_stored_again(sqlite_pool):
    sent = step("t", step_id="a", prompt_ids=list(range(1000)), response_ids=[1, 2])
    appender = sqlite_pool._appender

    def undone(txn):
        from agentworld.pool.sql.append_intake import prepare_all

        appender.append_all(txn, [prepare_all([sent])])
        raise ConflictError("undo")

    with pytest.raises(ConflictError):
        sqlite_pool._writer.submit(undone).result()
    assert sqlite_pool.stats().steps == 0
    assert sqlite_pool.append_steps([sent])[0].outcome == "stored"
    assert sqlite_pool.get_step("a").prompt_ids == sent.prompt_ids


def test_queued_writes_are_kept_at_close(tmp_path):
    pool = SqlitePool(tmp_path / "pool.db")
    futures = [pool.submit_steps([step("t", step_id=f"s{number}")]) for number in range(50)]
    pool.close()
    assert all(future.done() for future in futures)
    assert not (tmp_path / "pool.db-wal").exists()
    again = SqlitePool(tmp_path / "pool.db")
    assert len(again.list_steps().items) == 50
    again.close()


def test_a_file_that_is_no_database(tmp_path):
    path = tmp_path / "pool.db"
    path.write_bytes(b"not a database, certainly" * 100)
    with pytest.raises(PoolError, match="no SQLite database"):
        SqlitePool(path)
    assert path.read_bytes().startswith(b"not a database")


def test_a_database_that_is_no_pool(tmp_path):
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE mine (x)")
    with pytest.raises(PoolError, match="but no pool"):
        SqlitePool(path)


def test_a_pool_of_a_newer_version(tmp_path):
    path = tmp_path / "pool.db"
    SqlitePool(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(PoolError, match="9999") as caught:
        SqlitePool(path)
    assert "upgrade" in caught.value.hint


def test_a_damaged_file_is_named(tmp_path):
    path = tmp_path / "pool.db"
    pool = SqlitePool(path)
    pool.append_steps([step("t", step_id=f"s{number}", metadata={"x": "y" * 4000}) for number in range(50)])
    pool.close()
    data = bytearray(path.read_bytes())
    data[8192:] = b"\xff" * (len(data) - 8192)
    path.write_bytes(data)
    with pytest.raises(PoolError) as caught:
        damaged = SqlitePool(path)
        try:
            damaged.list_steps()
        finally:
            damaged.close()
    assert str(path) in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("table", ["token_blocks", "message_nodes"])
def test_a_row_that_others_build_on_and_that_is_gone_is_named(sqlite_pool, table):
    sqlite_pool.append_steps([step("t", step_id="a", prompt_ids=list(range(500)))])
    with sqlite3.connect(sqlite_pool.path) as connection:
        connection.execute(f"DELETE FROM {table} WHERE pk = 1")
    connection.close()
    with pytest.raises(PoolError, match="row 1, which others build on, is missing") as caught:
        sqlite_pool.get_step("a")
    assert "backup" in caught.value.hint
    # What does not need it is read as ever.
    assert len(sqlite_pool.list_steps().items) == 1


def test_a_reader_is_not_in_the_writers_way(sqlite_pool):
    sqlite_pool.create_trajectory(NewTrajectory(trajectory_id="t"))
    with sqlite_pool._database.reading() as connection:
        seen = connection.raw.execute("SELECT count(*) FROM steps").fetchone()[0]
        sqlite_pool.append_steps([step("t")])
        # The transaction still sees the state that it began with.
        assert connection.raw.execute("SELECT count(*) FROM steps").fetchone()[0] == seen == 0
    assert len(sqlite_pool.list_steps().items) == 1


def test_one_page_with_where_looks_at_a_bounded_number_of_rows(sqlite_pool, monkeypatch):
    from agentworld.pool.sql import reads

    monkeypatch.setattr(reads, "SCAN_ROWS", 10)
    sqlite_pool.append_steps([step("t", step_id=f"s{number}", metadata={"n": number}) for number in range(35)])
    for order, expected in (("oldest", ["s7", "s33"]), ("newest", ["s33", "s7"])):
        found, pages, cursor = [], 0, None
        while True:
            page = sqlite_pool.list_steps(where="metadata.n in (7, 33)", order=order, cursor=cursor)
            found += ids(page)
            pages += 1
            cursor = page.next_cursor
            if cursor is None:
                break
        assert (found, pages) == (expected, 4)


def test_a_missing_record_does_not_cost_the_connection(sqlite_pool):
    for _ in range(3):
        with pytest.raises(NotFoundError):
            sqlite_pool.get_step("gone")
    idle = list(sqlite_pool._database._idle)
    assert len(idle) == 1
    assert sqlite_pool.list_steps().items == []
    assert sqlite_pool._database._idle == idle
    assert not idle[0].in_transaction


def test_a_search_that_takes_too_long_ends_and_costs_nothing_else(sqlite_pool, monkeypatch):
    from agentworld.pool.sql import reads

    for number in range(100):
        finished(sqlite_pool, f"t{number}", reward=1.0, group_id=f"g{number}")
    slow = " or ".join(f"metadata.k{number} == {number}" for number in range(100))
    spec = BatchSpec(size=1, where=f"ready or {slow}", lease_seconds=10)
    monkeypatch.setattr(reads, "WHERE_SECONDS", 0.0)
    for call in (
        lambda: sqlite_pool.list_steps(where=slow),
        lambda: sqlite_pool.list_trajectories(where=slow),
        lambda: sqlite_pool.lease(BatchSpec(size=100, where=slow), "c"),
        lambda: sqlite_pool.lease(BatchSpec(method="grpo", groups=100, where=slow), "c"),
    ):
        with pytest.raises(QueryError, match="took longer") as caught:
            call()
        assert "Narrow" in caught.value.hint
    # Without where nothing is cut, and connections go on being used.
    assert len(sqlite_pool.list_steps(limit=1000).items) == 100
    assert len(sqlite_pool._database._idle) == 1
    monkeypatch.undo()
    assert sqlite_pool.list_trajectories(where=slow).items == []
    assert sqlite_pool.lease(spec, "c").items[0].key == "t0"


def test_a_lease_whose_search_takes_too_long_harms_no_write_beside_it(sqlite_pool, monkeypatch):
    from agentworld.pool.sql import reads
    from agentworld.pool.sql.knowledge import Knowledge
    from agentworld.pool.sql.taking import Attempt, take
    from agentworld.pool.sql.units import plan

    for number in range(100):
        finished(sqlite_pool, f"t{number}", reward=1.0)
    slow = " or ".join(f"metadata.k{number} == {number}" for number in range(100))
    gate = threading.Event()
    sqlite_pool._writer.submit(lambda txn: gate.wait(100))
    monkeypatch.setattr(reads, "WHERE_SECONDS", 0.0)
    good = [sqlite_pool.submit_steps([step("u", step_id="a")])]
    spec = BatchSpec(size=100, where=slow).resolved()
    wanted = plan(spec, "c", ("tokens",))
    knowledge = Knowledge(wanted)
    bad = sqlite_pool._writer.submit(lambda txn: take(txn, wanted, knowledge, Attempt(pulls=True)))
    good.append(sqlite_pool.submit_steps([step("u", step_id="b")]))
    gate.set()
    assert [future.result()[0].outcome for future in good] == ["stored", "stored"]
    with pytest.raises(QueryError, match="took longer"):
        bad.result()
    assert sqlite_pool.stats().batches == {}


def test_a_log_that_is_large_is_not_brought_in_after_each_transaction(sqlite_pool, monkeypatch):
    """SQLite keeps the log's file as large as it was, however little of it is in use."""
    from agentworld.pool.sqlite import session

    monkeypatch.setattr(session, "CHECKPOINT_BYTES", 1)
    monkeypatch.setattr(session, "PRESSED_SECONDS", 3600.0)
    statements = []
    sqlite_pool._writer.submit(lambda txn: txn.connection.raw.set_trace_callback(statements.append)).result()
    for number in range(20):
        sqlite_pool.append_steps([step("t", step_id=f"s{number}")])
    assert statements.count("COMMIT") >= 20
    assert not [statement for statement in statements if "checkpoint" in statement]
    monkeypatch.setattr(session, "PRESSED_SECONDS", 0.0)
    sqlite_pool.append_steps([step("t", step_id="last")])
    sqlite_pool._writer.submit(lambda txn: None).result()  # The writing thread is past its maintenance then.
    assert [statement for statement in statements if "checkpoint" in statement]
