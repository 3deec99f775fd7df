"""`agentworld curate run` and `agentworld curate checks`, also stopped and killed."""

import json
import signal
import subprocess
import sys

import pytest

from agentworld.cli import invoke
from agentworld.pool.sqlite import SqlitePool
from tests.curation.pools import found, put


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AGENTWORLD_POOL", raising=False)
    with_pool(tmp_path, lambda pool: put(pool, "a"))
    return tmp_path


def with_pool(path, work):
    pool = SqlitePool(path / "agentworld.db")
    try:
        return work(pool)
    finally:
        pool.close()


def test_a_run_prints_what_changed_and_again_nothing(path, capsys):
    assert invoke(["curate", "run", "--checks", "unrewarded, incomplete", "--checks", "loop"]) == 0
    printed = capsys.readouterr().out
    assert "check.unrewarded" in printed
    assert printed.endswith("Checked 1 trajectory with 1 step\n")
    assert invoke(["curate", "run", "--checks", "unrewarded,incomplete,loop", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["trajectories"], said["labels"]) == (0, {})
    assert invoke(["curate", "run", "--checks", "unrewarded,incomplete,loop", "--json", "--again"]) == 0
    assert json.loads(capsys.readouterr().out)["trajectories"] == 1
    assert with_pool(path, lambda pool: found(pool, "a")) == {"unrewarded": True}


def test_a_file_says_what_runs_and_options_win(path, capsys):
    (path / "checks.toml").write_text('run = ["loop"]\nchannel = "val"\n[checks]\nrepeats = 2\n')
    assert invoke(["curate", "run", "--config", "checks.toml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trajectories"] == 0
    options = ["--checks", "unrewarded", "--channel", "train", "--json"]
    assert invoke(["curate", "run", "--config", "checks.toml", *options]) == 0
    assert json.loads(capsys.readouterr().out)["labels"] == {"unrewarded": 1}


@pytest.mark.parametrize(
    ("options", "told", "code"),
    [
        (["--checks", "unrewarded,lop"], "Did you mean loop", 1),
        (["--config", "missing.toml"], "missing.toml does not exist", 1),
        (["--pool", "sqlite:///none.db"], "There is no pool", 1),
        (["--pool", "memory://"], "memory:// is a new and empty pool", 2),
    ],
)
def test_what_cannot_be_meant_is_refused(path, capsys, options, told, code):
    assert invoke(["curate", "run", *options]) == code
    assert told in capsys.readouterr().err


def test_checks_are_listed_and_explained(capsys):
    assert invoke(["curate", "checks"]) == 0
    listed, hint = capsys.readouterr()
    assert "exact_duplicate" in listed
    assert max(map(len, listed.splitlines())) <= 132
    assert "agentworld curate checks NAME" in hint
    assert invoke(["curate", "checks", "loop"]) == 0
    assert "How it fails:" in capsys.readouterr().out
    assert invoke(["curate", "checks", "stale", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["name"], said["scope"], said["gates"]) == ("stale", "trajectory", True)
    assert invoke(["curate", "checks", "stael"]) == 1
    assert "Did you mean stale" in capsys.readouterr().err


def following(path):
    command = [sys.executable, "-m", "agentworld", "curate", "run", "--follow", "--checks", "unrewarded"]
    return subprocess.Popen(command, cwd=path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def labelled(pool, name):
    """Wait until the run that follows has looked at a trajectory."""
    for event in pool.follow(timeout=150):
        if event.kind == "label.set" and event.trajectory_id == name:
            return
    raise AssertionError(name)


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_follows_is_stopped_or_killed_and_the_next_goes_on(path, ending, capsys):
    pool = SqlitePool(path / "agentworld.db")
    process = following(path)
    try:
        labelled(pool, "a")
        put(pool, "b")
        labelled(pool, "b")
        process.send_signal(ending)
        printed, error = process.communicate(timeout=150)
        assert process.returncode == (0 if ending == signal.SIGTERM else -signal.SIGKILL), error
        put(pool, "c")
        assert invoke(["curate", "run", "--checks", "unrewarded"]) == 0
        given = [(one.trajectory_id, one.name) for one in pool.list_feedback(limit=1000).items]
        assert sorted(given) == [(name, label) for name in "abc" for label in ("check.unrewarded", "checked")]
    finally:
        process.kill()
        process.wait()
        pool.close()
    if ending == signal.SIGTERM:
        assert "Checked 2 trajectories with 2 steps" in printed
        assert "stopped; the same command goes on" in error
        assert "Checked 1 trajectory" in capsys.readouterr().out
