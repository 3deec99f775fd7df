"""A pool that may only be read: reading works, writing is a clear error, and nothing is made beside the file."""

import contextlib
import os
import pwd
import sqlite3

import pytest

from agentworld.errors import PoolError
from agentworld.pool.sqlite import SqlitePool, readonly
from tests.faults.workers import made_step

WRITABLE, READABLE = 0o755, 0o555


@pytest.fixture
def folder(tmp_path):
    """A folder where an ordinary user may go, too."""
    for above in (tmp_path, *tmp_path.parents[:3]):  # One more where tests run in several processes.
        above.chmod(above.stat().st_mode | 0o055)
    folder = tmp_path / "pools"
    folder.mkdir()
    yield folder
    folder.chmod(WRITABLE)


@contextlib.contextmanager
def only_reading(folder):
    """A folder that this process may not write to; root, who may everywhere, is an ordinary user in here."""
    folder.chmod(READABLE)
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(pwd.getpwnam("nobody").pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)


def filled(path, steps=3):
    pool = SqlitePool(path)
    pool.append_steps([made_step("t", place) for place in range(steps)])
    return pool


def test_a_pool_in_a_folder_that_cannot_be_written_to_is_read_and_left_alone(folder):
    filled(folder / "pool.db").close()
    with only_reading(folder):
        before = sorted(os.listdir(folder))
        pool = SqlitePool(folder / "pool.db")
        assert [step.step_id for step in pool.list_steps().items] == ["t:0", "t:1", "t:2"]
        assert pool.get_step("t:1").prompt_ids == made_step("t", 1).prompt_ids
        with pytest.raises(PoolError, match="open for reading only") as caught:
            pool.append_steps([made_step("t", 3)])
        assert "Make both writable" in caught.value.hint
        assert pool.stats().steps == 3
        pool.close()
        with pytest.raises(PoolError, match="closed"):
            pool.stats()
        assert sorted(os.listdir(folder)) == before


def test_a_file_that_cannot_be_written_to_is_read(folder):
    filled(folder / "pool.db").close()
    (folder / "pool.db").chmod(0o444)
    with only_reading(folder):
        pool = SqlitePool(folder / "pool.db")
        assert pool.stats().steps == 3
        pool.close()


def test_what_another_writes_at_the_same_time_is_seen(folder):
    writer = filled(folder / "pool.db")
    with only_reading(folder):
        reader = SqlitePool(folder / "pool.db")
        assert reader.stats().steps == 3
    folder.chmod(WRITABLE)
    writer.append_steps([made_step("t", 3)])
    with only_reading(folder):
        assert reader.stats().steps == 4
    folder.chmod(WRITABLE)
    writer.close()
    with only_reading(folder):
        assert reader.stats().steps == 4
        reader.close()


def test_what_a_killed_writer_left_in_its_log_is_seen(folder):
    """As after kill -9: the log holds what was committed, and nobody has brought it into the file."""
    writer = filled(folder / "pool.db")
    for suffix in ("", "-wal", "-shm"):
        (folder / f"left.db{suffix}").write_bytes((folder / f"pool.db{suffix}").read_bytes())
    writer.close()
    with only_reading(folder):
        reader = SqlitePool(folder / "left.db")
        assert reader.stats().steps == 3
        reader.close()


def test_a_log_that_only_a_writer_can_bring_in_is_named(folder):
    writer = filled(folder / "pool.db")
    for suffix in ("", "-wal"):
        (folder / f"copy.db{suffix}").write_bytes((folder / f"pool.db{suffix}").read_bytes())
    writer.close()
    with only_reading(folder), pytest.raises(PoolError, match=r"log \(copy\.db-wal\)") as caught:
        SqlitePool(folder / "copy.db")
    assert "may write to its folder" in caught.value.hint
    again = SqlitePool(folder / "copy.db") if os.geteuid() == 0 else None
    if again is not None:
        assert again.stats().steps == 3
        again.close()


def test_a_read_during_which_the_file_changed_is_refused(folder):
    filled(folder / "pool.db").close()
    with only_reading(folder):
        reader = SqlitePool(folder / "pool.db")
    folder.chmod(WRITABLE)
    with pytest.raises(PoolError, match="written to while it was read"), reader._database.reading():
        filled(folder / "pool.db", 5).close()
    assert reader.stats().steps == 5
    reader.close()


def test_an_older_schema_is_named_where_it_cannot_be_brought_up_to_date(folder):
    filled(folder / "pool.db").close()
    with sqlite3.connect(folder / "pool.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0001'")
    connection.close()
    with only_reading(folder), pytest.raises(PoolError, match="has schema 0001") as caught:
        SqlitePool(folder / "pool.db")
    assert "may write" in caught.value.hint


def test_a_new_pool_where_nothing_can_be_made(folder):
    with only_reading(folder), pytest.raises(PoolError, match="cannot be opened: Permission denied") as caught:
        SqlitePool(folder / "pool.db")
    assert "folder writable" in caught.value.hint
    assert os.listdir(folder) == []


def test_a_folder_that_can_be_written_to_gives_a_pool_that_can(folder):
    filled(folder / "pool.db").close()
    assert not readonly.is_read_only(folder / "pool.db")
    assert not readonly.is_read_only(folder / "none.db")
