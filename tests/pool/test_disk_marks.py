"""Leases on SQLite free the lock before they are on the disk: nobody is told of what a power loss can take back."""

import concurrent.futures
import contextlib
import errno
import struct
import subprocess
import sys
import threading

import pytest

from agentworld.errors import PoolError
from agentworld.pool.sqlite import SqlitePool, disk_marks, readonly
from agentworld.records import BatchSpec
from agentworld.syncing import sync as sync_file

from .samples import finished, step

SPEC = BatchSpec(method="reinforce", size=1, lease_seconds=600)
LONG = 60


class Disk:
    """In place of the wait for the disk: it counts, and may stand still or fail."""

    def __init__(self, monkeypatch):
        self.waits = 0
        self.waiting = threading.Semaphore(0)
        self.error = None
        self._runs = threading.Event()
        self._runs.set()
        self._real = disk_marks.sync_log
        monkeypatch.setattr(disk_marks, "sync_log", self._sync)

    def _sync(self, log):
        self.waits += 1
        if self.error:
            raise self.error
        self.waiting.release()
        assert self._runs.wait(LONG)
        self._real(log)

    @contextlib.contextmanager
    def still(self):
        """It answers nobody inside."""
        self.waiting = threading.Semaphore(0)
        self._runs.clear()
        try:
            yield
        finally:
            self._runs.set()

    def is_asked(self):
        """Whether somebody waits for it by now."""
        return self.waiting.acquire(timeout=LONG)


@pytest.fixture
def pools(tmp_path):
    """Two that have the file open, as two processes have, with six trajectories that may be leased."""
    with contextlib.ExitStack() as stack:
        both = [stack.enter_context(contextlib.closing(SqlitePool(tmp_path / "pool.db"))) for _ in range(2)]
        for number in range(6):
            finished(both[0], f"t{number}", reward=1.0)
        yield both


@pytest.fixture
def disk(pools, monkeypatch):
    return Disk(monkeypatch)


@pytest.fixture
def threads():
    with concurrent.futures.ThreadPoolExecutor(8) as executor:
        yield executor


def test_others_write_while_a_lease_waits_for_the_disk(pools, disk, threads):
    one, other = pools
    with disk.still():
        lease = threads.submit(one.lease, SPEC, "c")
        assert disk.is_asked()
        assert threads.submit(other.append_steps, [step("more")]).result(LONG)[0].outcome == "stored"
        assert not lease.done()
    assert lease.result(LONG).items[0].key == "t0"


def test_an_acknowledgement_waits_without_the_lock_too(pools, disk, threads):
    one, other = pools
    batch = one.lease(SPEC, "c")
    with disk.still():
        ack = threads.submit(one.ack, batch.batch_id, batch.epoch)
        assert disk.is_asked()
        other.append_steps([step("more")])
        assert not ack.done()
    ack.result(LONG)
    assert other.list_batches().items[0].state == "acked"


READS = {
    "a look-up": lambda pool: pool.get_trajectory("t0"),
    "a page": lambda pool: pool.list_batches(),
    "events": lambda pool: pool.events(0),
    "figures": lambda pool: pool.stats(),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_read_of_whoever_waits_for_what_it_shows(read, pools, disk, threads):
    one, other = pools
    with disk.still():
        lease = threads.submit(one.lease, SPEC, "c")
        assert disk.is_asked()
        asked = [threads.submit(read, pool) for pool in (one, other)]
        assert disk.is_asked()
        assert disk.is_asked()
        assert not any(each.done() for each in asked)
    assert lease.result(LONG)
    assert [each.result(LONG) for each in asked] == [read(one), read(other)]


def test_what_is_on_the_disk_is_not_waited_for(pools, disk):
    one, other = pools
    batch = one.lease(SPEC, "c")
    one.ack(batch.batch_id, batch.epoch)
    assert disk.waits == 2  # Reading the batch needed none.
    for pool in pools:
        for read in READS.values():
            read(pool)
    other.append_steps([step("more")])
    assert disk.waits == 2


def test_one_wait_is_for_all_that_was_committed_before(pools, disk, threads):
    one, other = pools
    first, second = one.lease(SPEC, "c"), other.lease(SPEC, "c")
    with disk.still():
        acks = [threads.submit(one.ack, first.batch_id, first.epoch)]
        assert disk.is_asked()
        other.append_steps([step("more")])  # It waits for the disk by SQLite's own means, and so for the first as well.
        before = disk.waits
        other.get_trajectory("t0")
        one.list_batches()
        assert disk.waits == before
        acks.append(threads.submit(other.ack, second.batch_id, second.epoch))
        assert disk.is_asked()
    for ack in acks:
        ack.result(LONG)


def test_a_write_that_only_finds_something_waits_too_and_is_no_wait_for_others(pools, disk, threads):
    one, other = pools
    known = step("t0", step_id="known")
    one.append_steps([known])
    batch = one.lease(SPEC, "c")
    with disk.still():
        ack = threads.submit(one.ack, batch.batch_id, batch.epoch)
        assert disk.is_asked()
        again = threads.submit(other.append_steps, [known])
        assert disk.is_asked()
        read = threads.submit(other.stats)
        assert disk.is_asked()
        assert not any(each.done() for each in (ack, again, read))
    ack.result(LONG)
    assert again.result(LONG)[0].outcome == "duplicate"


def test_an_acknowledgement_that_was_made_before_asks_no_disk(pools, disk):
    one, other = pools
    batch = one.lease(SPEC, "c")
    one.ack(batch.batch_id, batch.epoch)
    for pool in (one, other):
        pool.ack(batch.batch_id, batch.epoch)
    assert disk.waits == 2


def test_what_was_committed_while_the_disk_was_asked_is_asked_for_anew(pools, disk, threads):
    one, other = pools
    with disk.still():
        first = threads.submit(one.lease, SPEC, "c")
        assert disk.is_asked()
        second = threads.submit(other.lease, SPEC, "c")
        assert disk.is_asked()
    assert {each.result(LONG).items[0].key for each in (first, second)} == {"t0", "t1"}


def test_a_disk_that_fails_is_told_to_all_who_need_it(pools, disk):
    one, other = pools
    disk.error = OSError(errno.EIO, "Input/output error")
    with pytest.raises(PoolError, match="Input/output error"):
        one.lease(SPEC, "c")
    for pool in pools:
        for read in READS.values():
            with pytest.raises(PoolError, match="Input/output error"):
                read(pool)
    disk.error = None
    assert len(other.list_batches().items) == 1  # It is there, though nobody was told, and ends with its time.
    assert other.lease(SPEC, "c").items[0].key == "t1"
    assert other.check() == []


def test_who_died_while_it_committed_costs_a_wait_for_each_read_until_the_next_commit(pools, disk):
    one, other = pools
    one._database.marks.begin()
    other.stats()
    other.get_trajectory("t0")
    assert disk.waits == 2
    one.append_steps([step("more")])
    other.stats()
    assert disk.waits == 2


def test_numbers_that_a_power_loss_left_anyhow_are_not_believed(tmp_path, monkeypatch, threads):
    with contextlib.closing(SqlitePool(tmp_path / "pool.db")) as pool:
        finished(pool, "t0", reward=1.0)
    (tmp_path / "pool.db.lock").write_bytes(struct.pack("3Q", 3, 5, 1_000_000))
    with contextlib.closing(SqlitePool(tmp_path / "pool.db")) as pool:
        disk = Disk(monkeypatch)
        with disk.still():
            lease = threads.submit(pool.lease, SPEC, "c")
            assert disk.is_asked()
            assert not lease.done()
        assert lease.result(LONG)


def test_a_lock_file_that_was_replaced_holds_the_numbers_from_then_on(pools, disk, threads):
    one, other = pools
    one.path.with_name("pool.db.lock").unlink()
    for pool in pools:
        pool.append_steps([step("more")])
    with disk.still():
        lease = threads.submit(one.lease, SPEC, "c")
        assert disk.is_asked()
        read = threads.submit(other.stats)
        assert disk.is_asked()
        assert not read.done()
    assert lease.result(LONG)
    assert read.result(LONG)


def test_a_lock_file_that_was_emptied_is_filled_by_who_opens_the_pool(tmp_path):
    with contextlib.closing(SqlitePool(tmp_path / "pool.db")) as pool:
        finished(pool, "t0", reward=1.0)
    (tmp_path / "pool.db.lock").write_bytes(b"\x01")
    with contextlib.closing(SqlitePool(tmp_path / "pool.db")) as pool:
        assert pool.lease(SPEC, "c")
        assert (tmp_path / "pool.db.lock").stat().st_size == 24


def test_other_processes_see_the_numbers(pools, disk, threads):
    """A process of its own reads while a lease of this one waits: it asks the disk by itself, and is answered then."""
    code = (
        "import sys; from agentworld.pool import open_store; from agentworld.pool.sqlite import disk_marks\n"
        "pool = open_store(sys.argv[1]); real = disk_marks.sync_log; asked = []\n"
        "disk_marks.sync_log = lambda log: (asked.append(log), real(log))\n"
        "print('open', flush=True); sys.stdin.readline(); pool.stats(); print(len(asked), flush=True)\n"
        "sys.stdin.readline(); pool.stats(); print(len(asked), flush=True); pool.close()\n"
    )
    command = [sys.executable, "-c", code, f"sqlite:///{pools[0].path}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def answer():
            process.stdin.write("\n")
            process.stdin.flush()
            return int(process.stdout.readline())

        assert process.stdout.readline() == "open\n"
        with disk.still():
            lease = threads.submit(pools[0].lease, SPEC, "c")
            assert disk.is_asked()
            assert answer() == 1
        assert lease.result(LONG)
        assert answer() == 1
        assert process.wait(LONG) == 0


def test_who_may_only_read_waits_for_the_disk_where_there_is_a_log(pools, monkeypatch):
    asked = []
    monkeypatch.setattr(readonly, "sync", lambda path: (asked.append(path.name), sync_file(path)))
    reader = readonly.ReadOnlyDatabase(pools[0].path)
    asked.clear()
    with reader.reading():
        pass
    assert asked == ["pool.db-wal"]
