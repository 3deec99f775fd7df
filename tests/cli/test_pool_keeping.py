"""pool check, gc, delete, backup, restore, export and import on the command line."""

import io
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
    assert "count: counters steps: the counter steps is 4, but there are 3. Statistics are off, the records are" in out
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
    assert "would go" in out
    assert "True" not in out
    assert left(pool) == ["a", "b", "open"]
    code, out, err = cli("pool", "gc", "--pool", pool, "--max-age", "0s", "--channel", "train", "--purge", "--json")
    assert code == 0, err
    assert json.loads(out)["trajectories"] == 2
    assert left(pool) == ["open"]


@pytest.mark.parametrize(
    ("option", "code"), [(("--max-age", "soon"), 2), (("--max-bytes", "much"), 2), (("--max-steps", "-1"), 1)]
)
def test_gc_refuses_what_makes_no_sense(refused, pool, option, code):
    refused("pool", "gc", "--pool", pool, *option, code=code)


def test_delete_asks_first(cli, refused, pool, monkeypatch):
    assert "Give --yes" in refused("pool", "delete", "a", "--pool", pool, code=2)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: (_ for _ in ()).throw(__import__("typer").Abort()))
    code, _, _ = cli("pool", "delete", "a", "--pool", pool)
    assert code == 130
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
    assert "--user" in refused("pool", "delete", "--pool", pool, "--yes", code=2)
    assert "--user" in refused("pool", "delete", "a", "--user", "bob", "--pool", pool, "--yes", code=2)


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
    assert "manifest.json is missing" in refused("pool", "import", tmp_path, "--pool", other)
    assert not (tmp_path / "other.db").exists()
    code, out, err = cli("pool", "import", tmp_path / "out", "--pool", other, "--json")
    assert code == 0, err
    assert json.loads(out)["trajectories"] == 2
    assert left(other) == ["a", "b"]
    assert "is there already" in refused("pool", "export", tmp_path / "out", "--pool", pool)
    assert "not known" in refused("pool", "export", tmp_path / "new", "--pool", pool, "--format", "csv", code=2)


@pytest.mark.parametrize("command", [("stats",), ("check",), ("gc",), ("backup", "b"), ("import", "e"), ("migrate",)])
def test_a_pool_of_the_command_alone_is_refused(refused, command, tmp_path):
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "manifest.json").write_text('{"schema_version": "0002", "created_at": 0}')
    assert "memory:// is a new and empty pool" in refused("pool", *command, "--pool", "memory://", code=2)


def test_problems_of_an_archive_say_what_to_do(cli, pool, tmp_path):
    with sqlite3.connect(tmp_path / "pool.db") as connection:
        connection.execute("UPDATE counters SET value = value + 1 WHERE name = 'steps'")
    connection.close()
    code, _, err = cli("pool", "backup", tmp_path / "b", "--pool", pool, "--verify")
    assert code == 1
    assert "import an export into a new pool" in err
