"""Commits on PostgreSQL that free the lock before they are on the disk: nobody is told of what a crash can take back.

The server of these tests has no process that writes its log by itself, so what nobody waits for stays in memory, and
goes with a kill.
"""

import os
import signal

import psycopg
import pytest

from agentworld.errors import NotFoundError, PoolError
from agentworld.pool import open_store
from agentworld.pool.postgres import database, session
from agentworld.pool.postgres.flushing import Flushing
from agentworld.records import BatchSpec
from tests.postgres_server import FAST, PostgresServer

from .samples import finished, ids, step

SPEC = BatchSpec(method="reinforce", size=2, lease_seconds=600)


class NeverFlushing(Flushing):
    """Acknowledges and shows what is not on the disk, which stands for the moment before it is."""

    after_write = "SELECT 1"

    def after_read(self, place):
        return []


class WaitingFlushing(Flushing):
    """Waits for a lock that the test holds, which stands for a slow disk."""

    after_write = "SELECT pg_advisory_lock_shared(42), pg_advisory_unlock_shared(42)"


class FailingFlushing(Flushing):
    """The wait for the disk fails as often as it says, as where an administrator cancels it."""

    failures = 1

    @property
    def after_write(self):
        if FailingFlushing.failures:
            FailingFlushing.failures -= 1
            return "SELECT 1 / 0"
        return Flushing.after_write.fget(self)


class CutFlushing(FailingFlushing):
    """The connection is cut while it waits for the disk."""

    @property
    def after_write(self):
        said = super().after_write
        return said.replace("SELECT 1 / 0", "SELECT pg_terminate_backend(pg_backend_pid())")


@pytest.fixture(scope="module")
def server():
    """A server that may be killed."""
    with PostgresServer({**FAST, "wal_writer_delay": "10s", "checkpoint_timeout": "1h"}) as server:
        yield server


@pytest.fixture
def url(server):
    url = server.fresh_pool_url()
    signal_log_writer(server, signal.SIGSTOP)
    yield url
    signal_log_writer(server, signal.SIGCONT)  # Dropping a database waits for every process of the server.
    server.drop_database(url.rpartition("/")[2])


@pytest.fixture
def pool(url):
    pool = open_store(url)
    yield pool
    pool.close()


def signal_log_writer(server, number):
    found = []
    while not found:  # It comes a moment after the first connections.
        found = server.execute("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'")
    os.kill(found[0][0], number)


def crash(server):
    server.kill()
    server.start()
    signal_log_writer(server, signal.SIGSTOP)


def flush_with(pool, kind):
    flushing = pool._database.flushing
    pool._database.flushing = kind.__new__(kind)
    pool._database.flushing.__dict__ = flushing.__dict__


def test_what_nobody_waits_for_goes_with_a_crash(server, pool):
    """Otherwise the other tests here would hold without any guard."""
    pool.append_steps([step("t", step_id="flushed")])
    flush_with(pool, NeverFlushing)
    pool.append_steps([step("t", step_id="lost")])
    crash(server)
    assert ids(pool.list_steps()) == ["flushed"]


@pytest.mark.parametrize("default", ["on", "off"])
def test_what_was_acknowledged_stays(server, url, default):
    server.execute(f'ALTER DATABASE "{url.rpartition("/")[2]}" SET synchronous_commit = {default}')
    pool = open_store(url)
    finished(pool, "t", reward=1.0)
    crash(server)
    assert pool.get_trajectory("t").reward == 1.0
    batch = pool.lease(BatchSpec(method="reinforce", size=1, lease_seconds=600), "c")
    crash(server)
    pool.ack(batch.batch_id, batch.epoch)
    crash(server)
    assert (pool.stats().batches, pool.check()) == ({"acked": 1}, [])
    pool.close()


def test_a_duplicate_is_acknowledged_once_what_it_duplicates_is_on_the_disk(server, url, pool):
    same = step("t", step_id="a")
    flush_with(pool, NeverFlushing)
    pool.append_steps([same])
    other = open_store(url)
    assert other.append_steps([same])[0].outcome == "duplicate"
    crash(server)
    assert ids(other.list_steps()) == ["a"]
    other.close()


READS = {
    "events": lambda pool: [event.step_id for event in pool.events() if event.kind == "step.appended"],
    "a page": lambda pool: ids(pool.list_steps()),
    "a record": lambda pool: [pool.get_step("a").step_id],
    "sequences": lambda pool: [arrays.step_id for arrays in pool.sequences(trajectory_id="t")],
    "figures": lambda pool: ["a"] * pool.stats().steps,
}


@pytest.mark.parametrize("default", ["on", "off"])
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_what_a_reader_was_shown_stays(server, url, read, default):
    server.execute(f'ALTER DATABASE "{url.rpartition("/")[2]}" SET synchronous_commit = {default}')
    writer, reader = open_store(url), open_store(url)
    flush_with(writer, NeverFlushing)
    writer.append_steps([step("t", step_id="a")])
    assert read(reader) == ["a"]
    crash(server)
    assert read(reader) == ["a"]
    writer.close()
    reader.close()


def test_a_follower_never_sees_a_number_that_is_given_again(server, url):
    writer, follower = open_store(url), open_store(url)
    flush_with(writer, NeverFlushing)
    seen = []
    for turn in range(3):
        writer.append_steps([step("t", step_id=f"s{turn}"), step("t", step_id=f"more{turn}")])
        seen += follower.events(after=seen[-1].sequence if seen else 0)
        writer.append_steps([step("t", step_id=f"lost{turn}")])
        crash(server)
    assert list(follower.events()) == seen
    assert [event.step_id for event in seen if event.step_id] == [
        f"{name}{n}" for n in range(3) for name in ("s", "more")
    ]
    writer.close()
    follower.close()


def test_the_lock_is_free_while_a_commit_waits_for_the_disk(server, url, pool):
    flush_with(pool, WaitingFlushing)
    other = open_store(url)
    with pool._database.connect().raw as disk:
        disk.execute("SELECT pg_advisory_lock(42)")
        waits = pool.submit_steps([step("t", step_id="slow")])
        while not ids(other.list_steps()):
            pass
        assert other.append_steps([step("t", step_id="beside")])[0].outcome == "stored"
        assert not waits.done()
        disk.execute("SELECT pg_advisory_unlock(42)")
    assert waits.result(100)[0].outcome == "stored"
    other.close()


def test_rows_of_before_a_crash_are_not_taken_to_be_there(server, pool):
    begun = list(range(300))
    pool.append_steps([step("t", step_id="kept", prompt_ids=begun)])
    flush_with(pool, NeverFlushing)
    pool.append_steps([step("t", step_id="lost", prompt_ids=[*begun, *range(300)])])
    crash(server)
    flush_with(pool, Flushing)
    longer = [*begun, *range(600)]
    assert pool.append_steps([step("t", step_id="again", prompt_ids=longer)])[0].outcome == "stored"
    assert pool.get_step("again").prompt_ids == longer
    assert pool.check() == []


def test_units_whose_acknowledgement_a_crash_took_back_are_leased_again(server, pool):
    for name in "ab":
        finished(pool, name, reward=1.0)
    assert len(pool.lease(SPEC, "other").items) == 2
    pool.lease(BatchSpec(method="reinforce", size=2, where="reward > 5"), "c")  # Fills the backlog, and takes nothing.
    flush_with(pool, NeverFlushing)
    batch = pool.lease(SPEC, "c")
    pool.ack(batch.batch_id, batch.epoch)
    assert pool.lease(SPEC, "c") is None
    crash(server)
    flush_with(pool, Flushing)
    assert len(pool.lease(SPEC, "c").items) == 2
    with pytest.raises(NotFoundError):
        pool.get_batch(batch.batch_id)


def test_with_synchronous_standbys_a_commit_waits_for_them_under_the_lock(server, pool):
    def mode():
        shown = []
        pool._writer.submit(
            lambda txn: shown.append(txn.connection.command("SHOW synchronous_commit").fetchall()[0][0])
        ).result(100)
        return shown[0]

    assert mode() == "off"
    server.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
    server.execute("SELECT pg_reload_conf()")
    try:
        while server.execute("SHOW synchronous_standby_names") != [("*",)]:
            pass
        assert mode() == "on"
    finally:
        server.execute("ALTER SYSTEM RESET synchronous_standby_names")
        server.execute("SELECT pg_reload_conf()")


@pytest.mark.parametrize("kind", [FailingFlushing, CutFlushing])
def test_a_commit_whose_wait_for_the_disk_failed_alone_is_waited_for_anew(server, pool, kind):
    FailingFlushing.failures = 1
    flush_with(pool, kind)
    first = step("t", step_id="a")
    lost = None
    try:
        assert pool.append_steps([first])[0].outcome == "stored"
    except PoolError as error:
        lost = str(error)
    if lost is not None:
        # The connection may be gone before the answer to COMMIT has come.
        assert kind is CutFlushing
        assert "may have been written" in lost
        assert pool.append_steps([first])[0].outcome in ("stored", "duplicate")
    assert FailingFlushing.failures == 0
    assert pool.append_steps([step("t", step_id="b")])[0].outcome == "stored"
    crash(server)
    assert ids(pool.list_steps()) == ["a", "b"]


def test_one_that_cannot_be_waited_for_is_said_to_have_perhaps_been_written(pool):
    FailingFlushing.failures = 2
    flush_with(pool, FailingFlushing)
    sent = [step("t", step_id="a")]
    with pytest.raises(PoolError, match="may have been written") as caught:
        pool.append_steps(sent)
    assert "ids make that safe" in caught.value.hint
    assert pool.append_steps(sent)[0].outcome == "duplicate"


def test_a_server_that_is_gone_after_a_commit_is_no_promise_that_nothing_was_written(server, pool, monkeypatch):
    pool.append_steps([step("t", step_id="before")])
    lost = []

    def refused(*_):
        lost.append(True)
        raise psycopg.OperationalError("connection refused")

    # The connection may also be gone before the answer to COMMIT has come; then nothing was to be waited for.
    tries = (step("t", step_id=f"a{number}") for number in range(30))
    while not lost:
        sent = next(tries)
        FailingFlushing.failures = 1
        flush_with(pool, CutFlushing)
        with monkeypatch.context() as patched:
            patched.setattr(session, "RECONNECT_SECONDS", 0.0)
            patched.setattr(database, "connect", refused)
            with pytest.raises(PoolError, match="may have been written") as caught:
                pool.append_steps([sent])
        assert caught.value.hint == "Send it again; ids make that safe"
        assert pool.append_steps([sent])[0].outcome in ("stored", "duplicate")
