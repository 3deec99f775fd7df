"""Backups are whole and consistent while others write, and restore to either engine."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from agentworld.errors import ConfigError, NotFoundError
from agentworld.pool import open_store
from agentworld.pool.partial import partial_file
from agentworld.pool.postgres import keeping as postgres_keeping
from agentworld.pool.restore import restore
from agentworld.pool.sqlite import SqlitePool
from agentworld.records import BatchSpec
from tests.pool.samples import finished, group, step


def contents(pool):
    """Everything that a pool holds, as records."""
    trajectories = pool.list_trajectories(limit=1000).items
    steps = pool.list_steps(limit=1000, include=("tokens", "messages", "logprobs")).items
    exchanges = [one for each in trajectories for one in pool.list_exchanges(each.trajectory_id)]
    return trajectories, steps, exchanges, pool.events(limit=1000), pool.dead_letters(), pool.tombstones()


def filled(pool):
    long = {"prompt_ids": list(range(1000)), "vocabulary": "v", "tools": [{"type": "function", "x": {"b": 1, "a": 2}}]}
    for name in "abc":
        finished(pool, name, steps=2, reward=0.5, step_changes=long)
    group(pool, "g", [0.0, 1.0])
    pool.append_steps([step("d", step_id="bad id")])
    pool.pin("dataset", "d1", ["a"])
    assert pool.lease(BatchSpec(method="sft", size=2), "policy") is not None
    pool.delete_trajectories(["c"], "asked")
    return contents(pool)


@pytest.fixture(params=["sqlite", "postgres"])
def source(request):
    return request.getfixturevalue(f"{request.param}_pool")


@pytest.fixture(params=["sqlite", "postgres"])
def target_url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'restored.db'}"
    return request.getfixturevalue("postgres").fresh_pool_url()


def test_what_was_backed_up_is_restored_to_either_engine(source, target_url, tmp_path, monkeypatch):
    monkeypatch.setattr(postgres_keeping, "COPIED_ROWS", 3)  # So that rows refer to those of other statements.
    before = filled(source)
    seen = []
    source.backup(tmp_path / "pool.backup", progress=lambda *told: seen.append(told))
    assert seen
    restore(tmp_path / "pool.backup", target_url)
    restored = open_store(target_url)
    try:
        assert contents(restored) == before
        assert restored.check() == []
        assert restored.pins() == source.pins()
        assert restored.stats() == source.stats()
        # Primary keys and epochs go on where they were.
        finished(restored, "later", reward=1.0)
        assert restored.check() == []
    finally:
        restored.close()


def test_a_backup_opens_as_a_pool(source, tmp_path):
    before = filled(source)
    source.backup(tmp_path / "pool.backup")
    archive = SqlitePool(tmp_path / "pool.backup")
    try:
        assert contents(archive) == before
        assert archive.check() == []
    finally:
        archive.close()


def test_a_backup_beside_writers_is_one_state(source, tmp_path):
    ended = threading.Event()

    def write():
        number = 0
        while not ended.is_set():
            finished(source, f"w{number}", steps=2, reward=1.0)
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(3):
            source.backup(tmp_path / f"{number}.backup")
    finally:
        ended.set()
        writer.join()
    sizes = []
    for number in range(3):
        archive = SqlitePool(tmp_path / f"{number}.backup")
        assert archive.check() == []
        sizes.append(archive.stats().steps)
        archive.close()
    assert sizes == sorted(sizes)
    assert sizes[-1] <= source.stats().steps


def test_nothing_is_overwritten(source, tmp_path, target_url):
    filled(source)
    there = tmp_path / "pool.backup"
    there.write_bytes(b"mine")
    with pytest.raises(ConfigError, match="is there already"):
        source.backup(there)
    assert there.read_bytes() == b"mine"
    source.backup(tmp_path / "good.backup")
    restore(tmp_path / "good.backup", target_url)
    with pytest.raises(ConfigError, match=r"is there already|is not empty"):
        restore(tmp_path / "good.backup", target_url)


def test_what_is_no_archive_is_refused(tmp_path, target_url):
    (tmp_path / "text").write_text("no archive")
    with pytest.raises(ConfigError, match="is no archive"):
        restore(tmp_path / "text", target_url)
    with pytest.raises(NotFoundError):
        restore(tmp_path / "missing", target_url)
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE x (y)")
    connection.close()
    with pytest.raises(ConfigError, match="is no archive"):
        restore(tmp_path / "other.db", target_url)
    assert not Path(target_url.removeprefix("sqlite:///")).exists()


def test_a_broken_off_backup_leaves_nothing(source, tmp_path):
    filled(source)

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        source.backup(tmp_path / "pool.backup", progress=stop)
    assert [path.name for path in tmp_path.iterdir() if "backup" in path.name] == []


def test_two_backups_to_one_file_do_not_meet_and_what_a_killed_one_left_is_taken_over(source, tmp_path):
    before = filled(source)
    path = tmp_path / "pool.backup"
    with partial_file(path) as partial:
        with pytest.raises(ConfigError, match="another backup or export"):
            source.backup(path)
        assert partial.exists()
    for end in ("", "-wal", "-journal"):
        (tmp_path / f"pool.backup.partial{end}").write_bytes(b"half" * 1000)
    source.backup(path)
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []
    with closing(open_store(f"sqlite:///{path}")) as opened:
        assert contents(opened) == before
