"""Threads of one process that lease and acknowledge at once: they wait a moment for one another, and the first reads
for all that leased in one transaction. Each lease stays its own.
"""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from agentworld.errors import PoolError, QueryError
from agentworld.pool import open_store
from agentworld.pool.sql import batch_reading, gathered, units
from agentworld.pool.sql.gathered import Company, Gathered
from agentworld.records import BatchSpec, Message, Step, Trajectory

from .samples import finished
from .test_leases_together import together

SECONDS = 60.0
THREADS = 8
SPEC = BatchSpec(method="reinforce", size=2)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request):
    return request.getfixturevalue(f"{request.param}_pool")


def parts(batch):
    """What of a batch can be changed, by identity."""
    found, left = {}, [batch.items]
    while left:
        at = left.pop()
        if isinstance(at, msgspec.Struct):
            left += [getattr(at, name) for name in at.__struct_fields__]
        elif isinstance(at, dict):
            left += at.values()
        elif isinstance(at, (list, tuple)):
            left += at
        if isinstance(at, (Step, Trajectory, Message, list, dict)):
            found[id(at)] = at
    return found


def keys(batch):
    return [item.key for item in batch.items]


def test_leases_of_many_threads_are_disjoint_and_whole(store):
    steps = {f"t{number}": finished(store, f"t{number}", reward=1.0, steps=3) for number in range(4 * THREADS)}
    start = threading.Barrier(THREADS)

    def work():
        found = []
        start.wait(SECONDS)
        while (batch := store.lease(SPEC, "c")) is not None:
            store.ack(batch.batch_id, batch.epoch)
            found.append(batch)
        return found

    with ThreadPoolExecutor(THREADS) as threads:
        batches = [batch for future in [threads.submit(work) for _ in range(THREADS)] for batch in future.result()]
    assert sorted(key for batch in batches for key in keys(batch)) == sorted(steps)
    assert len({batch.epoch for batch in batches}) == len({batch.batch_id for batch in batches}) == len(batches)
    for batch in batches:
        for item in batch.items:
            assert [step.step_id for step in item.trajectories[0].steps] == steps[item.key]
            for step in item.trajectories[0].steps:
                kept = store.get_step(step.step_id, include=("tokens", "messages", "logprobs"))
                assert (step.response_ids, step.response_logprobs) == (kept.response_ids, kept.response_logprobs)
                assert (step.prompt_messages, step.response_message) == (kept.prompt_messages, kept.response_message)
    assert store.stats().batches == {"acked": len(batches)}
    assert list(store.check()) == []


def test_batches_that_are_read_together_share_nothing_that_can_be_changed(store):
    for number in range(2 * THREADS):
        finished(store, f"t{number}", reward=1.0, steps=2)
    batches = together(store, [lambda: store.lease(SPEC, "c")] * THREADS)
    seen = {}
    for batch in batches:
        own = parts(batch)
        assert len(own) > 20
        assert not own.keys() & seen.keys()
        seen |= own


@pytest.mark.parametrize("order", ["fifo", "freshest"])
def test_a_batch_that_cannot_be_read_fails_alone(store, monkeypatch, order):
    for number in range(THREADS):
        finished(store, f"t{number}", reward=1.0)
    read = batch_reading.read_items

    def fails_for_one(reader, wanted, taken):
        if any(unit.key == "t3" for unit in taken):
            raise ValueError("of t3")
        return read(reader, wanted, taken)

    spec = BatchSpec(method="reinforce", size=1, order=order)
    with monkeypatch.context() as broken:
        broken.setattr(batch_reading, "read_items", fails_for_one)
        outcomes = together(store, [lambda: store.lease(spec, "c")] * THREADS)
    failed = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    assert [str(error) for error in failed] == ["of t3"]
    got = [keys(outcome)[0] for outcome in outcomes if not isinstance(outcome, Exception)]
    assert sorted(got) == [f"t{number}" for number in range(THREADS) if number != 3]
    # Its own thread has given it back, and no other lease.
    assert store.stats().batches == {"leased": THREADS - 1, "released": 1}
    assert keys(store.lease(spec, "c")) == ["t3"]


def test_a_search_that_takes_too_long_harms_no_other_lease(store, monkeypatch):
    for number in range(THREADS):
        finished(store, f"t{number}", reward=1.0, metadata={"k": number})

    @contextlib.contextmanager
    def too_long(connection, where):
        if where is not None:
            raise QueryError("the search with where took too long")
        yield

    monkeypatch.setattr(units, "bounded_search", too_long)
    bad = BatchSpec(method="reinforce", where="metadata.k >= 0")
    good = BatchSpec(method="reinforce")
    calls = [lambda spec=spec: store.lease(spec, "c") for spec in (good, bad, good, bad, good, good)]
    outcomes = together(store, calls)
    got = [keys(outcome)[0] for outcome in outcomes if not isinstance(outcome, Exception)]
    assert sorted(got) == ["t0", "t1", "t2", "t3"]
    assert [type(outcome) for outcome in outcomes if isinstance(outcome, Exception)] == [QueryError] * 2
    assert store.stats().batches == {"leased": 4}


def test_a_unit_that_nobody_acknowledged_is_set_aside_and_the_others_are_leased(store, clock):
    for number in range(THREADS):
        finished(store, f"t{number}", reward=1.0)
    spec = BatchSpec(method="reinforce", lease_seconds=10, max_deliveries=2)
    for _ in range(2):
        assert keys(store.lease(spec, "c")) == ["t0"]
        clock.now += 11
    batches = together(store, [lambda: store.lease(spec, "c")] * THREADS)
    assert sorted(keys(batch)[0] for batch in batches if batch is not None) == [f"t{n}" for n in range(1, THREADS)]
    assert [unit.key for unit in store.poisoned("c")] == ["t0"]


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_rests_while_batches_are_read_and_is_then_as_before(sqlite_pool, monkeypatch, enabled):
    for number in range(THREADS):
        finished(sqlite_pool, f"t{number}", reward=1.0)
    states, read = [], batch_reading.read_items

    def look(*args):
        states.append(gc.isenabled())
        if len(states) == 2:
            raise ValueError("of the second")
        return read(*args)

    monkeypatch.setattr(batch_reading, "read_items", look)
    (gc.enable if enabled else gc.disable)()
    try:
        outcomes = together(sqlite_pool, [lambda: sqlite_pool.lease(BatchSpec(method="reinforce"), "c")] * THREADS)
        assert gc.isenabled() is enabled
    finally:
        gc.enable()
    assert not any(isinstance(outcome, Exception) for outcome in outcomes)  # The second was read again.
    assert states == [False] * (THREADS + 1)


def test_a_batch_that_is_let_go_of_leaves_memory_at_once(sqlite_pool):
    import weakref

    for number in range(THREADS):
        finished(sqlite_pool, f"t{number}", reward=1.0)

    class Traced:
        pass

    batches = together(sqlite_pool, [lambda: sqlite_pool.lease(BatchSpec(method="reinforce"), "c")] * THREADS)
    gone = []
    gc.collect()
    gc.disable()
    try:
        for batch in batches:
            traced = Traced()
            gone.append(weakref.ref(traced))
            batch.metadata["traced"] = traced
        del batches, batch, traced
        assert [ref() for ref in gone] == [None] * THREADS
    finally:
        gc.enable()


class Inline:
    """A writer that does each operation as it is submitted, on a thread of its own."""

    def __init__(self):
        self.groups = []
        self._threads = ThreadPoolExecutor(1)

    def submit(self, operation, *, patient):
        return self._threads.submit(operation, None)

    def work(self, txn, payloads):
        self.groups.append(list(payloads))
        return [payload * 10 for payload in payloads]


@pytest.fixture
def inline():
    writer = Inline()
    yield writer
    writer._threads.shutdown()


def test_a_thread_without_company_waits_for_nobody(inline, monkeypatch):
    asked = Gathered(inline, inline.work, Company(waits=True))

    def refuse(seconds):
        raise AssertionError

    monkeypatch.setattr(gathered, "sleep", refuse)
    assert [asked.ask(number) for number in range(3)] == [0, 10, 20]
    assert inline.groups == [[0], [1], [2]]


def test_threads_that_came_together_wait_for_one_another(inline, monkeypatch):
    asked = Gathered(inline, inline.work, Company(waits=True))
    asked._expected = 3
    come = threading.Event()
    monkeypatch.setattr(gathered, "sleep", lambda seconds: come.wait(SECONDS))
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(asked.ask, 1)
        while not asked._waiting:
            time.sleep(0)
        others = [threads.submit(asked.ask, number) for number in (2, 3)]
        assert [other.result(SECONDS) for other in others] == [20, 30]  # Whoever was last has submitted.
        come.set()
        assert first.result(SECONDS) == 10
    assert [sorted(group) for group in inline.groups] == [[1, 2, 3]]


def test_who_expects_more_than_come_goes_alone_after_a_moment(inline):
    asked = Gathered(inline, inline.work, Company(waits=True))
    asked._expected = 3
    assert [asked.ask(number) for number in range(3)] == [0, 10, 20]
    assert inline.groups == [[0], [1], [2]]
    assert asked._expected == 1


def test_a_request_waits_for_who_reads_but_not_for_long(inline, monkeypatch):
    company = Company(waits=True)
    asked = Gathered(inline, inline.work, company)
    steps = []
    monkeypatch.setattr(gathered, "sleep", lambda seconds: steps.append(company.reading.locked()))
    with company.reading:
        assert asked.ask(1) == 10
    assert steps == [True] * gathered.MOST_STEPS


def test_a_thread_that_is_interrupted_while_it_waits_leaves_nobody_behind(inline, monkeypatch):
    asked = Gathered(inline, inline.work, Company(waits=True))
    asked._expected = 3

    def interrupted(seconds):
        while len(asked._waiting) < 2:
            pass
        raise KeyboardInterrupt

    monkeypatch.setattr(gathered, "sleep", interrupted)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(asked.ask, 1)
        while not asked._waiting:
            pass
        assert threads.submit(asked.ask, 2).result(SECONDS) == 20
        assert isinstance(first.exception(SECONDS), KeyboardInterrupt)
    assert inline.groups == [[1, 2]]


def test_a_writer_that_refuses_tells_all_that_wait():
    class Closed:
        def submit(self, operation, *, patient):
            raise PoolError("the pool is closed")

    asked = Gathered(Closed(), None, Company(waits=True))
    asked._expected = 2
    with ThreadPoolExecutor(2) as threads:
        errors = [future.exception(SECONDS) for future in [threads.submit(asked.ask, number) for number in range(2)]]
    assert [type(error) for error in errors] == [PoolError] * 2
    assert asked._waiting == []


_CONSUMERS = """
import sys, threading
from agentworld.pool import open_store
from agentworld.records import BatchSpec

pool, guard = open_store(sys.argv[1]), threading.Lock()

def work():
    while (batch := pool.lease(BatchSpec(method="reinforce", size=2, lease_seconds=600), "c")) is not None:
        told = " ".join(item.key for item in batch.items)
        pool.ack(batch.batch_id, batch.epoch)
        with guard:
            print(batch.batch_id, told, flush=True)

for _ in range(8):
    threading.Thread(target=work).start()
"""


def test_threads_that_are_killed_lose_nothing_and_have_nothing_twice(tmp_path):
    url = f"sqlite:///{tmp_path}/pool.db"
    everything = {f"t{number}" for number in range(400)}
    with contextlib.closing(open_store(url)) as pool:
        for name in everything:
            finished(pool, name, reward=1.0)
        told = []
        for _ in range(3):
            process = subprocess.Popen(
                [sys.executable, "-c", _CONSUMERS, url],
                stdout=subprocess.PIPE,
                text=True,
            )
            # Dies amid what eight threads do.
            told += [process.stdout.readline().split() for _ in range(20)]
            os.kill(process.pid, signal.SIGKILL)
            rest = process.stdout.read().splitlines(keepends=True)
            told += [line.split() for line in rest if line.endswith("\n")]
            process.stdout.close()
            process.wait(SECONDS)
            pool.resume("c", [])
        delivered = [key for _, *names in told for key in names]
        assert len(delivered) == len(set(delivered)) >= 120
        for batch_id, *names in told:
            record = pool.get_batch(batch_id)
            assert (record.state, [unit.key for unit in record.units]) == ("acked", names)
        acknowledged = pool.stats().consumers["c"].acknowledged
        left = set()
        while (batch := pool.lease(BatchSpec(method="reinforce", size=1), "c")) is not None:
            left |= set(keys(batch))
        # Each is acknowledged, told or not, or there to be leased again.
        assert len(left) + acknowledged == len(everything)
        assert not left & set(delivered)
        assert list(pool.check()) == []
