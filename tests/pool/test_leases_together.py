"""Leases and acknowledgements that wait for the writing thread together are one operation, and come to what they would
one after the other.
"""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentworld.errors import NotFoundError, PoolError, StaleLeaseError
from agentworld.pool.sql import batch_reading, gathered
from agentworld.records import BatchSpec

from .samples import finished

SECONDS = 60.0
WAITING = 8


@pytest.fixture(params=["sqlite", "postgres"])
def store(request):
    return request.getfixturevalue(f"{request.param}_pool")


def hold(store):
    """Keeps the writing thread busy until the returned event is set."""
    begun, gate = threading.Event(), threading.Event()

    def wait(txn):
        begun.set()
        gate.wait(SECONDS)

    store._writer.submit(wait)
    assert begun.wait(SECONDS)
    return gate


def together(store, calls):
    """The outcomes of calls that all wait while the writing thread is busy, in order."""
    gate = hold(store)
    leases = store._leases

    def waiting():
        return len(leases._acks._waiting) + sum(len(each.takes._waiting) for each in leases._hints.values())

    def outcome(call):
        try:
            return call()
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(calls)) as threads:
        futures = []
        for number, call in enumerate(calls, start=1):
            futures.append(threads.submit(outcome, call))
            until = time.monotonic() + SECONDS
            while waiting() < number:
                assert time.monotonic() < until
                time.sleep(0.001)
        gate.set()
        return [future.result(SECONDS) for future in futures]


def keys(batch):
    return None if batch is None else [item.key for item in batch.items]


@pytest.fixture
def statements(store, monkeypatch):
    """The tables that are written to, one entry for each statement of the writing thread."""
    said = []
    connection = type(store._writer.submit(lambda txn: txn.connection).result())

    def noting(was):
        def noted(self, statement, *rest):
            if statement.writes:
                said.append(statement.text("sqlite").split()[:3])
            return was(self, statement, *rest)

        return noted

    for name in ("execute", "many"):
        monkeypatch.setattr(connection, name, noting(getattr(connection, name)))
    return said


def test_leases_that_wait_together_share_their_statements(store, statements):
    for number in range(2 * WAITING + 2):
        finished(store, f"t{number:02}", reward=1.0)
    spec = BatchSpec(method="reinforce", size=2)
    first = store.lease(spec, "c")
    statements.clear()
    batches = together(store, [lambda: store.lease(spec, "c")] * WAITING)
    assert statements.count(["INSERT", "INTO", "batches"]) == 1
    assert statements.count(["INSERT", "INTO", "deliveries"]) == 1
    assert len(statements) <= 8
    assert [keys(batch) for batch in batches] == [[f"t{n:02}", f"t{n + 1:02}"] for n in range(2, 2 * WAITING + 2, 2)]
    assert [batch.epoch for batch in batches] == [first.epoch + n for n in range(1, WAITING + 1)]
    statements.clear()
    calls = [lambda batch=batch: store.ack(batch.batch_id, batch.epoch) for batch in batches]
    assert together(store, calls) == [None] * WAITING
    assert statements.count(["UPDATE", "deliveries", "SET"]) == 1
    assert store.stats().batches == {"leased": 1, "acked": WAITING}
    assert store.stats().consumers["c"].acknowledged == 2 * WAITING
    told = [event.kind for event in store.events(limit=1000)]
    assert (told.count("batch.leased"), told.count("batch.acked")) == (WAITING + 1, WAITING)


def test_threads_of_one_process_read_their_batches_one_after_the_other(store, monkeypatch):
    for number in range(WAITING):
        finished(store, f"t{number}", reward=1.0)
    reading, most, read = [], [], batch_reading.read_items

    def slowly(*args):
        reading.append(1)
        most.append(len(reading))
        time.sleep(0.01)
        found = read(*args)
        reading.pop()
        return found

    monkeypatch.setattr(batch_reading, "read_items", slowly)
    batches = together(store, [lambda: store.lease(BatchSpec(method="reinforce", size=1), "c")] * WAITING)
    assert sorted(key for batch in batches for key in keys(batch)) == [f"t{number}" for number in range(WAITING)]
    assert most == [1] * WAITING


def test_others_have_the_processor_between_the_statements_that_read_a_batch_in_this_process(store, monkeypatch):
    finished(store, "t", reward=1.0)
    said = []
    monkeypatch.setattr(batch_reading, "_give_way", lambda: said.append(1))
    assert keys(store.lease(BatchSpec(method="reinforce", size=1), "c")) == ["t"]
    # Steps and trajectories at the least; a server of its own has its own processes.
    assert len(said) == 0 if store._database.works_elsewhere else len(said) >= 2


def test_each_acknowledgement_has_an_outcome_of_its_own(store, clock):
    for number in range(4):
        finished(store, f"t{number}", reward=1.0)
    spec = BatchSpec(method="reinforce", lease_seconds=10)
    lost = store.lease(spec, "c")
    clock.now += 11
    # The unit of the lost one comes first again; the second holds it now.
    good, other, released = (store.lease(spec, "c") for _ in range(3))
    store.release(released.batch_id, released.epoch)
    outcomes = together(
        store,
        [
            lambda: store.ack(good.batch_id, good.epoch),
            lambda: store.ack("nobody", 1),
            lambda: store.ack(lost.batch_id, lost.epoch),
            lambda: store.ack(other.batch_id, other.epoch + 1),
            lambda: store.ack(good.batch_id, good.epoch),
            lambda: store.ack(released.batch_id, released.epoch),
        ],
    )
    kinds = [None, NotFoundError, StaleLeaseError, StaleLeaseError, None, StaleLeaseError]
    assert [None if outcome is None else type(outcome) for outcome in outcomes] == kinds
    assert store.stats().batches == {"acked": 1, "leased": 1, "expired": 1, "released": 1}
    assert store.stats().consumers["c"].acknowledged == 1


def test_a_fault_of_the_engine_is_told_to_all_that_wait(store, monkeypatch):
    finished(store, "t", reward=1.0)
    spec = BatchSpec(method="reinforce")
    assert store.lease(spec, "c") is not None
    gate = hold(store)
    with ThreadPoolExecutor(3) as threads, monkeypatch.context() as broken:
        broken.setattr(store._database, "is_engine_fault", lambda error: True)
        store._writer.submit(lambda txn: 1 / 0)
        futures = [threads.submit(store.lease, spec, "c") for _ in range(3)]
        takes = next(iter(store._leases._hints.values())).takes
        until = time.monotonic() + SECONDS
        while len(takes._waiting) < 3 and time.monotonic() < until:
            time.sleep(0.001)
        gate.set()
        errors = [future.exception(SECONDS) for future in futures]
    assert all(isinstance(error, (PoolError, ZeroDivisionError)) for error in errors)
    assert store.lease(spec, "c") is None


def test_a_pool_that_is_closed_refuses_and_waits_for_nobody(sqlite_pool):
    store = sqlite_pool
    finished(store, "t", reward=1.0)
    batch = store.lease(BatchSpec(method="reinforce"), "c")
    store.close()
    for _ in range(2):
        with pytest.raises(PoolError, match="closed"):
            store.ack(batch.batch_id, batch.epoch)


@pytest.mark.parametrize("waits", [False, True])
def test_an_operation_that_never_began_lets_its_requests_hear_of_it(waits):
    from concurrent.futures import Future

    class Busy:
        def __init__(self):
            self.operations = []

        def submit(self, operation, *, patient):
            self.operations.append((operation, Future()))
            return self.operations[-1][1]

    writer = Busy()
    asked = gathered.Gathered(writer, lambda txn, payloads: payloads, gathered.Company(waits=waits))
    with ThreadPoolExecutor(2) as threads:
        futures = [threads.submit(asked.ask, number) for number in range(2)]
        until = time.monotonic() + SECONDS
        while len(asked._waiting) < 2 and time.monotonic() < until:
            time.sleep(0.001)
        [(_, done)] = writer.operations
        done.set_exception(PoolError("the lock is not to be had"))
        assert [type(future.exception(SECONDS)) for future in futures] == [PoolError, PoolError]
    assert asked._waiting == []


@pytest.mark.parametrize("waits", [False, True])
def test_an_operation_that_has_failed_before_its_request_looks_is_told(waits):
    from concurrent.futures import Future

    class Failed:
        def submit(self, operation, *, patient):
            done = Future()
            done.set_exception(PoolError("the pool file was removed"))
            return done

    asked = gathered.Gathered(Failed(), lambda txn, payloads: payloads, gathered.Company(waits=waits))
    for _ in range(2):
        outcome = Future()

        def ask(outcome=outcome):
            try:
                asked.ask(1)
            except PoolError as error:
                outcome.set_result(error.message)

        threading.Thread(target=ask, daemon=True).start()  # One that hangs would keep a pool of threads from ending.
        assert outcome.result(SECONDS) == "the pool file was removed"
    assert asked._waiting == []


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    order=st.sampled_from(["fifo", "freshest", "random", "priority"]),
    count=st.integers(0, 11),
    size=st.integers(1, 4),
    least=st.integers(1, 4),
    waiting=st.integers(2, 5),
    rare=st.booleans(),
)
def test_what_leases_get_together_they_would_get_one_after_the_other(
    tmp_path_factory, empty_file, order, count, size, least, waiting, rare
):
    import shutil

    from agentworld.pool.sqlite import SqlitePool

    where = "metadata.k == 1" if rare else None
    spec = BatchSpec(method="reinforce", size=size, min_size=min(size, least), order=order, seed=3, where=where)
    found = []
    for alone in (True, False):
        pool = SqlitePool(shutil.copy(empty_file, tmp_path_factory.mktemp("p") / "pool.db"))
        try:
            for number in range(count):
                finished(pool, f"t{number}", reward=1.0, metadata={"k": number % 2}, priority=float(number % 3))
            pool.set_paused(False)
            calls = [lambda pool=pool: pool.lease(spec, "c")] * waiting
            batches = [call() for call in calls] if alone else together(pool, calls)
            batches += [pool.lease(spec, "c") for _ in range(count)]
            found.append(sorted((batch.epoch, keys(batch)) for batch in batches if batch is not None))
        finally:
            pool.close()
    assert found[0] == found[1]
