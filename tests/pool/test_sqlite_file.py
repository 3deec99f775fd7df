"""The pool's file and its lock file while others remove, replace or hold them."""

import contextlib
import os
import shutil
import threading
import time

import pytest

from agentworld.errors import InvalidRequestError, PoolError
from agentworld.pool.sqlite import SqlitePool, database
from agentworld.pool.sqlite.lock import FileLock

from .samples import ids, step

FILES = ("pool.db", "pool.db-wal", "pool.db-shm", "pool.db.lock")


def remove(folder, *names):
    for name in names:
        (folder / name).unlink(missing_ok=True)


def waiting_threads():
    return [thread for thread in threading.enumerate() if thread.name == "agentworld-pool-lock"]


@pytest.fixture(autouse=True)
def no_thread_left():
    """All threads that wait for a lock have ended with what they waited for."""
    yield
    for thread in waiting_threads():
        thread.join(100)
    assert waiting_threads() == []


@pytest.fixture
def hasty(tmp_path, empty_file):
    """A pool that does not wait long for its lock."""
    pool = SqlitePool(shutil.copy(empty_file, tmp_path / "pool.db"), lock_seconds=0.05)
    yield pool
    pool.close()


@pytest.fixture
def lock_path(hasty):
    return hasty.path.with_name("pool.db.lock")


def test_a_pool_whose_file_is_gone_says_so_and_makes_no_other(tmp_path):
    pool = SqlitePool(tmp_path / "pool.db")
    pool.append_steps([step("t", step_id="a")])
    remove(tmp_path, *FILES)
    for call in (lambda: pool.append_steps([step("t")]), pool.gateway_state, lambda: pool.get_step("a"), pool.stats):
        with pytest.raises(PoolError, match="removed or replaced") as caught:
            call()
        assert "restart" in caught.value.hint
    pool.close()
    assert list(tmp_path.iterdir()) == []


def test_a_look_up_notices_too_that_the_file_is_gone(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "LOOK_SECONDS", 0.0)
    pool = SqlitePool(tmp_path / "pool.db")
    pool.append_steps([step("t", step_id="a")])
    assert pool.get_trajectory("t").step_count == 1
    remove(tmp_path, *FILES)
    for _ in range(2):  # What failed is looked for anew.
        with pytest.raises(PoolError, match="removed or replaced"):
            pool.get_trajectory("t")
    pool.close()
    with pytest.raises(PoolError, match="is closed"):
        pool.get_trajectory("t")


def test_a_removed_log_is_noticed_and_what_was_in_it_is_kept_at_close(tmp_path):
    pool = SqlitePool(tmp_path / "pool.db")
    pool.append_steps([step("t", step_id="a")])
    remove(tmp_path, "pool.db-wal")
    for call in (lambda: pool.append_steps([step("t", step_id="b")]), pool.stats):
        with pytest.raises(PoolError, match=r"pool\.db-wal was removed"):
            call()
    pool.close()
    again = SqlitePool(tmp_path / "pool.db")
    assert ids(again.list_steps()) == ["a"]
    assert again.append_steps([step("t", step_id="b")])[0].outcome == "stored"
    again.close()


def test_the_log_of_one_who_closes_stays_for_the_others(tmp_path):
    first = SqlitePool(tmp_path / "pool.db")
    first.append_steps([step("t", step_id="a")])
    second = SqlitePool(tmp_path / "pool.db")
    first.close()
    second.append_steps([step("t", step_id="b")])
    third = SqlitePool(tmp_path / "pool.db")
    second.close()
    assert ids(third.list_steps()) == ["a", "b"]
    third.append_steps([step("t", step_id="c")])
    third.close()


def test_another_file_in_the_pools_place_is_not_touched(tmp_path):
    pool = SqlitePool(tmp_path / "pool.db")
    pool.append_steps([step("t", step_id="old")])
    remove(tmp_path, *FILES)
    other = SqlitePool(tmp_path / "pool.db")
    other.append_steps([step("t", step_id="new")])
    with pytest.raises(PoolError, match="removed or replaced"):
        pool.append_steps([step("t", step_id="lost")])
    with pytest.raises(PoolError, match="removed or replaced"):
        pool.list_steps()
    pool.close()
    other.append_steps([step("t", step_id="newer")])
    assert ids(other.list_steps()) == ["new", "newer"]
    other.close()
    again = SqlitePool(tmp_path / "pool.db")
    assert ids(again.list_steps()) == ["new", "newer"]
    again.close()


def test_a_file_that_was_moved_away_and_back_is_the_same_pool(tmp_path):
    pool = SqlitePool(tmp_path / "pool.db")
    (tmp_path / "pool.db").rename(tmp_path / "aside.db")
    with pytest.raises(PoolError, match="removed or replaced"):
        pool.append_steps([step("t", step_id="a")])
    (tmp_path / "aside.db").rename(tmp_path / "pool.db")
    assert pool.append_steps([step("t", step_id="a")])[0].outcome == "stored"
    assert ids(pool.list_steps()) == ["a"]
    pool.close()


def test_a_name_with_the_signs_of_a_uri_is_a_name(tmp_path):
    path = tmp_path / "50%?mode=memory#1.db"
    pool = SqlitePool(path)
    pool.append_steps([step("t", step_id="a")])
    assert ids(pool.list_steps()) == ["a"]
    pool.close()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [path.name, f"{path.name}.lock"]


def test_a_lock_that_is_held_for_too_long_is_named_and_the_pool_goes_on_after(hasty, lock_path):
    with FileLock(lock_path):
        for _ in range(3):
            with pytest.raises(PoolError) as caught:
                hasty.append_steps([step("t", step_id="a")])
            assert str(lock_path) in caught.value.message
            assert "lsof" in caught.value.hint
        assert len(waiting_threads()) == 1
    assert hasty.append_steps([step("t", step_id="a")])[0].outcome == "stored"


def test_what_came_too_late_is_let_go_of(lock_path):
    holder, late = FileLock(lock_path), FileLock(lock_path, 0.01)
    with holder, pytest.raises(PoolError), late:
        pass
    # The late one's thread now gets the lock, and nobody wants it.
    with contextlib.closing(FileLock(lock_path, 20)) as third, third:
        pass
    with late:
        pass
    holder.close()
    late.close()


def test_a_lock_that_is_closed_while_it_waits_is_let_go_of(lock_path):
    holder, late = FileLock(lock_path), FileLock(lock_path, 0.01)
    with holder:
        with pytest.raises(PoolError), late:
            pass
        late.close()
    for thread in waiting_threads():
        thread.join(100)
    with FileLock(lock_path, 0):
        pass


def test_those_who_wait_in_time_get_the_lock(lock_path):
    holder, second = FileLock(lock_path), FileLock(lock_path, 20)
    order = []

    def wait():
        with second:
            order.append("second")

    with holder:
        thread = threading.Thread(target=wait)
        thread.start()
        while not waiting_threads():
            thread.join(0.001)
        order.append("first")
    thread.join(100)
    assert order == ["first", "second"]
    holder.close()
    second.close()


def test_one_thread_waits_however_often_a_lock_is_waited_for(lock_path):
    holder, second = FileLock(lock_path), FileLock(lock_path, 20)
    for number in range(3):
        holder.acquire()
        release = threading.Timer(0.02, holder.release)
        release.start()
        with second:
            assert len(waiting_threads()) == 1, number
        release.join()
    [thread] = waiting_threads()
    holder.close()
    second.close()
    thread.join(100)
    assert waiting_threads() == []


def waited_for(lock, holder, work, release=None):
    """Run `work` under the lock, which the holder lets go of once it is waited for."""
    holder.acquire()

    def let_go():
        while lock._waiting is None:
            time.sleep(0.001)
        (release or holder.release)()

    other = threading.Thread(target=let_go)
    other.start()
    try:
        lock.run(work)
    finally:
        other.join()


def test_who_waited_for_the_lock_does_the_work(lock_path):
    holder, second = FileLock(lock_path), FileLock(lock_path, 20)
    threads = []

    def work():
        threads.append(threading.current_thread())
        second.release()

    second.run(work)
    waited_for(second, holder, work)
    with holder:  # It was let go of.
        pass
    assert threads == [threading.main_thread(), *waiting_threads()]
    holder.close()
    second.close()


def test_a_fault_of_the_work_is_raised_where_it_was_asked_for(lock_path):
    holder, second = FileLock(lock_path), FileLock(lock_path, 20)

    def fail():
        second.release()
        raise ValueError("not today")

    for _ in range(2):
        with pytest.raises(ValueError, match="not today"):
            waited_for(second, holder, fail)
    done = []
    waited_for(second, holder, lambda: [done.append(True), second.release()])
    assert done == [True]
    holder.close()
    second.close()


def test_a_lock_that_is_closed_while_its_own_thread_works_is_let_go_of_after(lock_path):
    holder, second = FileLock(lock_path), FileLock(lock_path, 20)
    begun, goes_on = threading.Event(), threading.Event()

    def work():
        begun.set()
        goes_on.wait(100)

    other = threading.Thread(target=waited_for, args=(second, holder, work))
    other.start()
    assert begun.wait(100)
    second.close()
    goes_on.set()
    other.join(100)
    for thread in waiting_threads():
        thread.join(100)
    with FileLock(lock_path, 0):
        pass
    holder.close()


def test_work_that_waited_for_too_long_is_never_done(lock_path):
    holder, late = FileLock(lock_path), FileLock(lock_path, 0.01)
    done = []
    with holder:
        for number in range(2):
            with pytest.raises(PoolError):
                late.run(lambda number=number: done.append(number))
    with late:
        pass
    assert done == []
    holder.close()
    late.close()


def test_work_under_a_lock_file_that_was_replaced_is_done_under_the_new_one(lock_path):
    holder, second = FileLock(lock_path), FileLock(lock_path, 20)
    found = []

    def work():
        with contextlib.closing(FileLock(lock_path, 0.01)) as third, pytest.raises(PoolError), third:
            pass
        found.append(os.fstat(second.descriptor).st_ino == lock_path.stat().st_ino)
        second.release()

    def replace():
        lock_path.unlink()
        lock_path.touch()
        holder.release()

    waited_for(second, holder, work, replace)
    assert found == [True]
    holder.close()
    second.close()


def test_readers_need_no_lock(hasty, lock_path):
    hasty.append_steps([step("t", step_id="a")])
    with FileLock(lock_path), contextlib.ExitStack() as readers:
        for _ in range(12):  # More than are kept, so that some are closed as they come back.
            connection = readers.enter_context(hasty._database.reading())
            assert connection.raw.execute("SELECT count(*) FROM steps").fetchone()[0] == 1
        readers.close()
        assert ids(hasty.list_steps()) == ["a"]
    assert waiting_threads() == []


def test_a_removed_lock_file_still_keeps_others_out(hasty, lock_path):
    lock_path.unlink()
    with FileLock(lock_path), pytest.raises(PoolError, match="held by another"):
        hasty.append_steps([step("t", step_id="a")])
    assert hasty.append_steps([step("t", step_id="a")])[0].outcome == "stored"
    lock_path.unlink()
    assert hasty.append_steps([step("t", step_id="b")])[0].outcome == "stored"
    assert lock_path.exists()


def test_who_waits_for_a_lock_file_that_was_removed_goes_over_to_the_new_one(hasty, lock_path):
    with FileLock(lock_path):
        with pytest.raises(PoolError):
            hasty.append_steps([step("t", step_id="a")])
        lock_path.unlink()
        assert hasty.append_steps([step("t", step_id="a")])[0].outcome == "stored"


def test_a_lock_whose_file_cannot_be_looked_at_is_let_go_of(lock_path, monkeypatch):
    lock, other = FileLock(lock_path), FileLock(lock_path, 0.0)

    def fail():
        raise OSError("Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(lock, "_is_in_place", fail)
        with pytest.raises(OSError, match="Input/output"):
            lock.acquire()
    with other:
        pass
    lock.close()
    other.close()


def test_a_value_that_sqlite_cannot_hold_fails_alone(sqlite_pool):
    gate = threading.Event()
    writer = sqlite_pool._writer
    writer.submit(lambda txn: gate.wait(100))
    bad = [
        writer.submit(lambda txn, value=value: txn.connection.raw.execute("SELECT :value", {"value": value}))
        for value in (2**63, "\ud800", object())
    ]
    good = sqlite_pool.submit_steps([step("t", step_id="a")])
    gate.set()
    assert good.result()[0].outcome == "stored"
    for future in bad:
        with pytest.raises(InvalidRequestError, match="cannot be stored"):
            future.result()


def test_a_linked_pool_is_the_file_that_the_link_leads_to(tmp_path):
    """One lock and one log, by whatever name the pool was opened."""
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")
    by_name, by_link = SqlitePool(tmp_path / "real.db"), SqlitePool(tmp_path / "link.db")
    by_link.append_steps([step("t", step_id="a")])
    assert by_name.get_step("a").step_id == "a"
    assert not (tmp_path / "link.db.lock").exists()
    by_name.close()
    by_link.close()
