"""`agentworld reward run`, `reward failures` and `reward calibrate`."""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from agentworld.cli import reward_over_http
from agentworld.client.connection import ServerUnreachableError
from agentworld.errors import ConflictError, ForbiddenError
from agentworld.factory import connect, open_pool
from agentworld.pool import open_store
from agentworld.pool.keys import NewKey
from agentworld.records import Feedback
from tests.api.serving import Serving
from tests.rewards.counting_evaluators import counted
from tests.rewards.pools import put

CONFIG = """
[[evaluator]]
kind = "numeric"
answer = "last_number"
reward = "correct"

[[evaluator]]
kind = "beside:odd"
isolation = "none"
reward = "odd"

[[evaluator]]
kind = "normalise"
value = "correct"
by = "mean"
"""
BESIDE = '''
"""A module beside the configuration."""


def odd(run):
    number = int(run.steps[-1].response_message.text.split()[-1])
    if number == 3:
        raise ValueError("three\\x1b[31m is red")
    return float(number % 2)
'''


@pytest.fixture(autouse=True)
def _own_modules(monkeypatch):
    """Modules beside a configuration are found for the time of a test only."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    sys.modules.pop("beside", None)


@pytest.fixture
def pool(tmp_path):
    """A pool of two groups of two; the last trajectory's answer is one that `odd` fails on."""
    url = f"sqlite:///{tmp_path}/pool.db"
    with open_pool(url) as opened:
        for n in range(4):
            task = {"reference": str(n % 2)}
            put(
                opened.store, f"t{n}", f"it is {n}", group_id=f"g{n // 2}", group_size=2, rollout_index=n % 2, task=task
            )
    (tmp_path / "evaluators.toml").write_text(CONFIG)
    (tmp_path / "beside.py").write_text(BESIDE)
    return url


def test_a_run_its_failures_and_once_more(cli, pool, tmp_path):
    code, out, err = cli("reward", "run", "evaluators.toml", "--pool", pool, "--dry-run")
    assert (code, err) == (0, "")
    assert "4 trajectories and 2 groups; nothing was evaluated" in out
    assert not {"mean", "evaluated"} & set(out.splitlines()[0].split())
    assert [line.split()[:2] for line in out.splitlines()[2:5]] == [["numeric", "4"], ["odd", "4"], ["normalise", "2"]]
    limited = cli("reward", "run", "evaluators.toml", "--pool", pool, "--dry-run", "--limit", "1")[1]
    assert limited.splitlines()[-1] == "1 trajectory; nothing was evaluated"
    with open_pool(pool) as opened:
        assert opened.get_trajectory("t0").rewards == {}

    code, out, err = cli("reward", "run", "evaluators.toml", "--pool", pool)
    assert code == 1
    assert "1 evaluation failed. `agentworld reward failures --evaluator odd` says why" in err
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line and line[0].isalpha()}
    assert rows["numeric"][:5] == ["4", "0", "0", "0", "0.5"]
    assert rows["odd"][:4] == ["3", "0", "1", "0"]
    assert rows["normalise"][:4] == ["2", "0", "0", "0"]
    assert "4 trajectories and 2 groups" in out
    with open_pool(pool) as opened:
        assert opened.get_trajectory("t1").rewards == {"correct": 1.0, "odd": 1.0, "reward": 0.0}
        assert opened.get_trajectory("t3").labels == {"evaluation.odd": "failed"}

    code, out, err = cli("reward", "failures", "--pool", pool)
    assert code == 0
    assert "trajectory t3" in out
    assert "three\\x1b[31m is red" in out
    assert cli("reward", "failures", "--pool", pool, "--trajectory", "t0")[1] == "No evaluation has failed\n"
    [line] = cli("reward", "failures", "--pool", pool, "--evaluator", "odd", "--json")[1].splitlines()
    assert {name: json.loads(line)[name] for name in ("evaluator", "target", "target_id", "attempts")} == {
        "evaluator": "odd",
        "target": "trajectory",
        "target_id": "t3",
        "attempts": 1,
    }

    assert cli("reward", "run", "evaluators.toml", "--pool", pool)[0] == 0
    (tmp_path / "beside.py").write_text(BESIDE.replace("== 3", "== 33"))
    sys.modules.pop("beside")
    code, out, _ = cli("reward", "run", "evaluators.toml", "--pool", pool, "--again", "failed", "--json")
    assert (code, json.loads(out)["evaluators"]["odd"]["evaluated"]) == (0, 1)
    assert cli("reward", "failures", "--pool", pool)[1] == "No evaluation has failed\n"


def test_a_run_over_what_a_server_has(cli, refused, pool, monkeypatch):
    """Evaluators and their code are here, what they said is there; a key says who may."""
    over_http, here = (
        ["reward", "run", "evaluators.toml", "--url"],
        ("reward", "run", "evaluators.toml", "--pool", pool),
    )
    with Serving(open_store(pool)) as server:
        keys = {
            scope: server.pool.create_key(NewKey(name=scope, scopes=(scope,))).secret for scope in ("read", "admin")
        }
        both = server.pool.create_key(NewKey(name="judge", scopes=("read", "write"))).secret
        bound = server.pool.create_key(NewKey(name="bound", scopes=("read", "write"), channel="train")).secret
        over_http.append(server.url)
        monkeypatch.setenv("AGENTWORLD_API_KEY", keys["read"])
        assert cli(*over_http, "--dry-run")[0] == 0
        assert "lacks the scope write" in refused(*over_http)
        monkeypatch.setenv("AGENTWORLD_API_KEY", bound)
        assert "the whole pool" in refused(*over_http)
        assert server.pool.get_trajectory("t0").rewards == {}
        monkeypatch.setenv("AGENTWORLD_API_KEY", both)
        code, out, err = cli(*over_http, "--json")
        assert (code, json.loads(out)["evaluators"]["numeric"]["evaluated"]) == (1, 4), err
        assert server.pool.get_trajectory("t1").rewards == {"correct": 1.0, "odd": 1.0, "reward": 0.0}
        assert "three\\x1b[31m is red" in cli("reward", "failures", "--url", server.url)[1]
        # It goes on where it was; and content has the same digests wherever it is read.
        assert json.loads(cli(*over_http, "--json")[1])["trajectories"] == 0
        with connect(server.url) as factory:
            with pytest.raises(ForbiddenError, match="runs of evaluators"):
                factory.load_follower("curate:*:x")
            assert factory.load_follower("reward:nobody") is None
    assert json.loads(cli(*here, "--again", "failed", "--json")[1])["evaluators"]["odd"]["failed"] == 1
    assert "Nothing answers" in refused(*over_http)


class Away:
    """A server that is away for the calls that are named by number, and whose answers to them are lost."""

    def __init__(self, pool, lost):
        self.pool, self.lost, self.calls = pool, lost, 0

    def __getattr__(self, name):
        def call(*given, **named):
            self.calls += 1
            found = getattr(self.pool, name)(*given, **named)
            if self.calls in self.lost:
                raise ServerUnreachableError("away")
            return found

        return call


def test_a_server_that_is_away_for_a_while_is_waited_for(monkeypatch):
    monkeypatch.setattr(reward_over_http, "FIRST_PAUSE", 0.001)
    pool, stop = open_store("memory://"), threading.Event()
    never = Away(pool, {1})
    with pytest.raises(ServerUnreachableError):
        reward_over_http.OverHttp(never, stop).stats()  # It may not be there at all.
    over_http = reward_over_http.OverHttp(Away(pool, {2, 3}), stop)
    assert over_http.load_follower("reward:r") is None
    saved = over_http.save_follower("reward:r", 1, b"here")  # The first was saved, and its answer was lost.
    assert (saved.revision, saved.state) == (1, b"here")
    assert over_http.load_follower("reward:r") == saved
    pool.save_follower("reward:r", 2, b"another", revision=1)
    with pytest.raises(ConflictError):
        over_http.save_follower("reward:r", 1, b"mine", revision=1)
    stop.set()
    ended = reward_over_http.OverHttp(Away(pool, {2}), stop)
    ended.stats()
    with pytest.raises(ServerUnreachableError):
        ended.stats()
    pool.close()


def test_what_cannot_be_meant_is_refused(refused, pool, tmp_path):
    run = ("reward", "run", "evaluators.toml", "--pool", pool)
    assert "--follow does not go with" in refused(*run, "--follow", "--again", "failed", code=2)
    assert "is no part" in refused(*run, "--shard", "4/4", code=2)
    assert "no evaluator is called 'even'" in refused(*run, "--only", "even")
    assert "'rewrad'" in refused(*run, "--where", "rewrad > 1")
    assert "does not exist" in refused("reward", "run", "nothing.toml", "--pool", pool)
    assert "no pool" in refused("reward", "run", "evaluators.toml", "--pool", "sqlite:///other.db")
    (tmp_path / "evaluators.toml").write_text(CONFIG.replace("numeric", "numerik"))
    assert "Did you mean numeric" in refused(*run)


def test_calibration_against_labels_and_ratings(cli, refused, pool):
    command = ("reward", "calibrate", "correct", "human", "--pool", pool)
    cli("reward", "run", "evaluators.toml", "--pool", pool)
    line = refused(*command)
    assert "no trajectory has both 'correct' (4 have it) and a label or rating 'human' (0 have one)" in line
    with open_pool(pool) as opened:
        said = [
            Feedback(kind="label", trajectory_id="t0", name="human", value=True),
            Feedback(kind="label", trajectory_id="t1", name="human", value="yes"),
            Feedback(kind="label", trajectory_id="t2", name="human", value="no"),
            # Of each source its last rating counts.
            Feedback(kind="rating", trajectory_id="t3", name="human", value=0.1, source="ann"),
            Feedback(kind="rating", trajectory_id="t3", name="human", value=0.75, source="ann"),
            Feedback(kind="rating", trajectory_id="t3", name="human", value=0.85, source="ben"),
        ]
        opened.add_signals(said)
    code, out, _ = cli(*command, "--json")
    report = json.loads(out)
    # correct is 1, 1, 0, 0, and people say 1, 1, 0, 0.8.
    assert (code, report["overall"]["count"], report["overall"]["accuracy"]) == (0, 4, 0.75)
    assert report["bias"] == pytest.approx(-0.2)
    assert "4 judged by both; accuracy 0.750" in cli(*command)[1]
    assert (
        json.loads(cli(*command, "--evaluator", "numeric", "--where", "task.reference == '1'", "--json")[1])["overall"][
            "count"
        ]
        == 2
    )


def _start(config, pool, *options):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "agentworld", "reward", "run", str(config), "--pool", pool, *options]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def _until(condition, process):
    pause = threading.Event()
    for _ in range(5000):
        if condition():
            return
        assert process.poll() is None, process.communicate()[0]
        pause.wait(0.02)
    raise AssertionError("it did not come to that")


def _slow(tmp_path, log, slow):
    config = tmp_path / "slow.toml"
    config.write_text(
        '[[evaluator]]\nkind = "tests.rewards.counting_evaluators:number"\nisolation = "none"\n'
        f'[evaluator.parameters]\nlog = "{log}"\nslow = {slow}\n'
    )
    return config


def test_killed_in_the_middle_it_goes_on_with_nothing_lost_and_nothing_twice(tmp_path):
    url, log = f"sqlite:///{tmp_path}/pool.db", tmp_path / "log"
    count, at_once = 80, 4
    with open_pool(url) as opened:
        for n in range(count):
            put(opened.store, f"t{n}", f"it is {n}")
    config = _slow(tmp_path, log, 0.05)
    kills = 0
    for wanted in (20, 50):
        process = _start(config, url, "--concurrency", str(at_once))
        _until(lambda wanted=wanted: len(counted(log)) >= wanted, process)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        kills += 1
    process = _start(config, url, "--concurrency", str(at_once))
    out = process.communicate(timeout=120)[0]
    assert process.returncode == 0, out
    with open_pool(url) as opened:
        values = {one.trajectory_id: one.rewards for one in opened.list_trajectories(limit=1000).items}
        assert values == {f"t{n}": {"number": float(n)} for n in range(count)}
        assert len(opened.list_evaluations(state="ok", limit=1000).items) == count
    calls = counted(log)
    assert set(calls) == set(values)
    # What was at work at a kill is all that was evaluated twice.
    assert len(calls) - count <= kills * at_once


def test_a_worker_follows_what_comes_and_ends_on_request(tmp_path):
    url, log = f"sqlite:///{tmp_path}/pool.db", tmp_path / "log"
    config = _slow(tmp_path, log, 0.0)
    with open_pool(url) as opened:
        put(opened.store, "t0", "it is 0")
        process = _start(config, url, "--follow")
        try:
            _until(lambda: opened.get_trajectory("t0").rewards, process)
            for n in range(1, 4):
                put(opened.store, f"t{n}", f"it is {n}")
                _until(lambda n=n: opened.get_trajectory(f"t{n}").rewards == {"number": float(n)}, process)
        finally:
            process.send_signal(signal.SIGTERM)
            out = process.communicate(timeout=150)[0]
        assert (process.returncode, counted(log)) == (0, ["t0", "t1", "t2", "t3"]), out
        assert "stopped; the same command goes on" in out
