"""pool check, gc, delete, backup, restore, export and import on the command line."""

import json
import sqlite3

import pytest

from agentworld.factory import open_pool
from agentworld.records import NewTrajectory
from tests.pool.samples import finished, step


@pytest.fixture
def pool(tmp_path):
    url = f"sqlite:///{tmp_path}/pool.db"
    with open_pool(url) as opened:
        finished(opened, "a", reward=1.0, user="alice")
        finished(opened, "b", reward=1.0, user="bob")
        opened.create_trajectory(NewTrajectory(trajectory_id="open"))
        opened.append_steps([step("open")])
    return url


def left(pool):
    with open_pool(pool) as opened:
        return [one.trajectory_id for one in opened.list_trajectories().items]


def test_check_says_what_is_wrong_and_fails(cli, pool, tmp_path):
    code, out, err = cli("pool", "check", "--pool", pool)
    assert (code, out, err) == (0, "No problem found\n", "")
    with sqlite3.connect(tmp_path / "pool.db") as connection:
        connection.execute("UPDATE counters SET value = value + 1 WHERE name = 'steps'")
        connection.execute("UPDATE message_nodes SET coding = 99 WHERE pk = 2")
    connection.close()
    code, out, _ = cli("pool", "check", "--pool", pool)
    assert code == 1
    assert "count: counters steps: the counter steps is 4, but there are 3." in out
    assert "hash: message_nodes 2: " in out
    assert out.endswith("2 problems\n")
    code, out, _ = cli("pool", "check", "--pool", pool, "--json", "--shallow")
    assert code == 1
    assert [problem["kind"] for problem in json.loads(out)] == ["count"]


def test_gc_collects_and_says_so(cli, pool):
    code, out, err = cli("pool", "gc", "--pool", pool, "--max-age", "1000w", "--json")
    assert code == 0, err
    assert json.loads(out)["trajectories"] == 0
    code, out, _ = cli("pool", "gc", "--pool", pool, "--max-steps", "2", "--dry-run")
    assert code == 0
    assert left(pool) == ["a", "b", "open"]
    code, out, err = cli("pool", "gc", "--pool", pool, "--max-age", "0s", "--channel", "train", "--purge", "--json")
    assert code == 0, err
    assert json.loads(out)["trajectories"] == 2
    assert left(pool) == ["open"]


@pytest.mark.parametrize("option", [("--max-age", "soon"), ("--max-bytes", "much"), ("--max-steps", "-1")])
def test_gc_refuses_what_makes_no_sense(cli, pool, option):
    code, _, err = cli("pool", "gc", "--pool", pool, *option)
    assert code != 0
    assert "Traceback" not in err


def test_delete_asks_first(cli, pool, monkeypatch):
    monkeypatch.setattr("typer.confirm", lambda *_, **__: (_ for _ in ()).throw(__import__("typer").Abort()))
    code, _, _ = cli("pool", "delete", "a", "--pool", pool)
    assert code != 0
    assert left(pool) == ["a", "b", "open"]
    code, out, err = cli("pool", "delete", "a", "--pool", pool, "--yes", "--reason", "asked", "--json")
    assert code == 0, err
    assert json.loads(out)["trajectories"] == 1
    code, _, err = cli("pool", "delete", "--user", "bob", "--pool", pool, "--yes", "--no-purge")
    assert code == 0, err
    assert left(pool) == ["open"]
    with open_pool(pool) as opened:
        assert [one.reason for one in opened.tombstones(limit=1)] == ["asked"]


def test_delete_takes_ids_or_a_user(refused, pool):
    assert "--user" in refused("pool", "delete", "--pool", pool, "--yes")
    assert "--user" in refused("pool", "delete", "a", "--user", "bob", "--pool", pool, "--yes")


def test_backup_and_restore(cli, refused, pool, tmp_path):
    code, out, err = cli("pool", "backup", tmp_path / "pool.backup", "--pool", pool, "--verify")
    assert code == 0, err
    assert "holds the pool" in out
    assert "is there already" in refused("pool", "backup", tmp_path / "pool.backup", "--pool", pool)
    restored = f"sqlite:///{tmp_path}/restored.db"
    code, _, err = cli("pool", "restore", tmp_path / "pool.backup", "--pool", restored, "--verify")
    assert code == 0, err
    assert left(restored) == left(pool)
    assert "is there already" in refused("pool", "restore", tmp_path / "pool.backup", "--pool", restored)
    assert "no archive at" in refused("pool", "restore", tmp_path / "missing", "--pool", f"sqlite:///{tmp_path}/x.db")


def test_export_and_import(cli, refused, pool, tmp_path):
    code, out, err = cli("pool", "export", tmp_path / "out", "--pool", pool, "--where", "reward >= 0.5", "--json")
    assert code == 0, err
    assert json.loads(out)["rows"]["trajectories"] == 2
    other = f"sqlite:///{tmp_path}/other.db"
    open_pool(other).close()
    code, out, err = cli("pool", "import", tmp_path / "out", "--pool", other, "--json")
    assert code == 0, err
    assert json.loads(out)["trajectories"] == 2
    assert left(other) == ["a", "b"]
    assert "is there already" in refused("pool", "export", tmp_path / "out", "--pool", pool)
    assert "not known" in refused("pool", "export", tmp_path / "new", "--pool", pool, "--format", "csv")
