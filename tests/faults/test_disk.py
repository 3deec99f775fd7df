"""A disk that is full or fails: a clear error, nothing half written, and the pool goes on once there is room."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from agentworld.errors import PoolError, PoolFullError
from agentworld.pool.restore import restore
from agentworld.pool.sqlite import SqlitePool, session
from agentworld.records import BatchSpec, NewTrajectory
from tests.faults.workers import made_step
from tests.power.survivors import listed
from tests.power.vfs import Unwatchable, Watcher, library, watched

SQLITE_OK, SQLITE_FULL, SQLITE_IOERR_FSYNC = 0, 13, 1034
SPEC = BatchSpec(method="reinforce", size=1, lease_seconds=600)


class Quota(Watcher):
    """Room for `free` more bytes, taken as files grow and not given back; None: as much as the real disk has."""

    def __init__(self, free=None):
        self.free = free
        self._sizes = {}

    def before_write(self, path, offset, size):
        known = self._sizes.setdefault(path, 0)
        grows = max(0, offset + size - known)
        if self.free is not None:
            if grows > self.free:
                return SQLITE_FULL
            self.free -= grows
        self._sizes[path] = known + grows
        return SQLITE_OK

    def truncated(self, path, size):
        self._sizes[path] = size

    def deleted(self, path):
        self._sizes.pop(path, None)


class FailingSync(Watcher):
    """The next `failures` syncs report an error of the disk."""

    failures = 0

    def before_sync(self, path):
        if not self.failures:
            return SQLITE_OK
        self.failures -= 1
        return SQLITE_IOERR_FSYNC


@pytest.fixture
def disk(tmp_path):
    """The disk of `tmp_path`, as large as wanted."""
    try:
        library()
    except Unwatchable as error:
        pytest.skip(str(error))
    quota = Quota()
    with watched(quota, tmp_path):
        yield quota


def test_a_pool_that_fills_its_disk_again_and_again_keeps_what_it_acknowledged(tmp_path, disk, monkeypatch):
    monkeypatch.setattr(session, "CHECKPOINT_BYTES", 60_000)
    monkeypatch.setattr(session, "PRESSED_SECONDS", 0.0)
    chance = random.Random(5)
    pool = SqlitePool(tmp_path / "pool.db")
    stored, ended, delivered = set(), set(), set()
    place = 0
    for filling in range(6):
        disk.free = chance.randrange(60_000)
        with pytest.raises(PoolFullError, match="no space is left") as caught:
            while True:
                trajectory_id = f"t{place}"
                pool.create_trajectory(NewTrajectory(trajectory_id=trajectory_id))
                for number in range(2):
                    assert pool.append_steps([made_step(trajectory_id, number)])[0].outcome in ("stored", "duplicate")
                    stored.add(f"{trajectory_id}:{number}")
                pool.complete_trajectory(trajectory_id, "finished", 1.0)
                ended.add(trajectory_id)
                # None where the disk filled up between a lease and its end: that one stays out until the end.
                if (batch := pool.lease(SPEC, "c")) is not None:
                    pool.ack(batch.batch_id, batch.epoch)
                    delivered.add(batch.items[0].key)
                place += 1
        assert (caught.value.status, caught.value.hint) == (507, "Free space on its disk and send again")
        # Reading needs no room, and what is there is what was acknowledged.
        steps = listed(pool, ())
        assert {step.step_id for step in steps} == stored
        assert len(steps) == len(stored) == pool.stats().steps
        if filling % 3 == 2:
            pool.close()
            disk.free = None
            pool = SqlitePool(tmp_path / "pool.db")
    disk.free = None
    pool.resume("c", [])
    left = set()
    while (batch := pool.lease(SPEC, "c")) is not None:
        left.add(batch.items[0].key)
    assert left == ended - delivered
    for step in listed(pool):
        assert step.prompt_ids == made_step(step.trajectory_id, step.step_index).prompt_ids
    pool.close()


def test_threads_that_lease_together_are_all_told_of_a_full_disk_and_have_each_unit_once_after(
    tmp_path, disk, monkeypatch
):
    monkeypatch.setattr(session, "PRESSED_SECONDS", 600.0)  # No checkpoint, so that the log grows by each transaction.
    pool = SqlitePool(tmp_path / "pool.db")
    everything = {f"t{place}" for place in range(64)}
    for name in everything:
        pool.create_trajectory(NewTrajectory(trajectory_id=name))
        pool.append_steps([made_step(name, 0)])
        pool.complete_trajectory(name, "finished", 1.0)

    def work():
        found = []
        while True:
            try:
                batch = pool.lease(SPEC, "c")
                if batch is None:
                    return found, None
                pool.ack(batch.batch_id, batch.epoch)
            except PoolError as error:
                return found, error
            found.append(batch.items[0].key)

    disk.free = 400_000
    with ThreadPoolExecutor(8) as threads:
        results = [future.result() for future in [threads.submit(work) for _ in range(8)]]
    assert {type(error) for _, error in results} == {PoolFullError}
    assert len([key for found, _ in results for key in found]) < len(everything)
    disk.free = None
    pool.resume("c", [])
    delivered = [key for found, _ in results for key in found]
    with ThreadPoolExecutor(8) as threads:
        delivered += [key for future in [threads.submit(work) for _ in range(8)] for key in future.result()[0]]
    assert sorted(delivered) == sorted(everything)
    pool.close()


def test_a_disk_without_room_for_a_new_pool_is_a_clear_error_and_the_next_try_starts_afresh(tmp_path, disk):
    for tried in range(5):
        disk.free = tried * 60_000
        with pytest.raises(PoolFullError, match="no space is left for the pool"):
            SqlitePool(tmp_path / "pool.db")
    disk.free = None
    pool = SqlitePool(tmp_path / "pool.db")
    assert pool.append_steps([made_step("t", 0)])[0].outcome == "stored"
    pool.close()


def test_a_full_disk_of_a_backup_or_a_restored_pool_is_told_as_that(tmp_path, disk):
    pool = SqlitePool(tmp_path / "pool.db")
    pool.append_steps([made_step("t", place) for place in range(20)])
    disk.free = 100_000
    with pytest.raises(PoolFullError, match=r"no space is left for .*pool\.backup; nothing of it is kept"):
        pool.backup(tmp_path / "pool.backup")
    disk.free = None
    pool.backup(tmp_path / "pool.backup")
    pool.close()
    disk.free = 100_000
    with pytest.raises(PoolFullError, match=r"no space is left for .*restored\.db; nothing of it is kept"):
        restore(tmp_path / "pool.backup", f"sqlite:///{tmp_path / 'restored.db'}")
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name or "restored" in path.name] == []


def test_a_pool_closes_on_a_full_disk_and_opens_with_everything(tmp_path, disk):
    pool = SqlitePool(tmp_path / "pool.db")
    pool.append_steps([made_step("t", place) for place in range(20)])
    disk.free = 0
    pool.close()
    disk.free = None
    pool = SqlitePool(tmp_path / "pool.db")
    assert len(listed(pool)) == 20
    pool.close()


def test_a_sync_that_fails_is_told_and_sending_again_stores_once(tmp_path):
    syncs = FailingSync()
    with watched(syncs, tmp_path):
        pool = SqlitePool(tmp_path / "pool.db")
        pool.append_steps([made_step("t", 0)])
        for place in range(1, 6):
            syncs.failures = 1
            with pytest.raises(PoolError, match="disk I/O error"):
                pool.append_steps([made_step("t", place)])
            assert pool.append_steps([made_step("t", place)])[0].outcome in ("stored", "duplicate")
        assert [step.step_index for step in listed(pool)] == [0, 1, 2, 3, 4, 5]
        pool.close()
        pool = SqlitePool(tmp_path / "pool.db")
        assert [step.step_id for step in listed(pool)] == [f"t:{place}" for place in range(6)]
        pool.close()
