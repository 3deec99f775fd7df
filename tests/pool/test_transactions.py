"""What a write transaction leaves behind once it has ended."""

import gc
import weakref

import pytest

from agentworld.pool.sql.events import add_event

from .samples import step


@pytest.mark.parametrize("engine", ["sqlite_pool", "postgres_pool"])
def test_nothing_holds_a_transaction_that_has_ended(request, engine, monkeypatch):
    pool = request.getfixturevalue(engine)
    begun = []
    inner = pool._writer._transact

    def noted(transaction, waiting):
        begun.append(weakref.ref(transaction))
        return inner(transaction, waiting)

    monkeypatch.setattr(pool._writer, "_transact", noted)
    for name in "abc":
        pool.append_steps([step("t", step_id=name)])
    pool._writer.submit(lambda txn: None).result()  # The thread has let go of the transactions before this one.
    gc.collect()
    assert len(begun) >= 4
    assert [one() for one in begun[:3]] == [None, None, None]


@pytest.mark.parametrize("engine", ["sqlite_pool", "postgres_pool"])
def test_a_mark_tells_whether_anybody_has_written_since(request, engine):
    pool = request.getfixturevalue(engine)

    def run(operation):
        return pool._writer.submit(operation).result()

    def written(txn):
        add_event(txn, "gateway.paused")
        return txn.mark()

    mark = run(written)
    assert run(lambda txn: txn.is_at(mark))
    assert run(lambda txn: txn.is_at(mark))  # Who only looks has not written.
    run(written)
    assert not run(lambda txn: txn.is_at(mark))
