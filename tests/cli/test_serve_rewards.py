"""`agentworld serve --rewards`: evaluators in a process beside the workers."""

import http.client
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from agentworld.client import Factory
from agentworld.records import Message
from agentworld.testing import ScriptedEngine
from tests.alive import alive
from tests.cli.test_serve import serve, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
CONFIG = """
[[evaluator]]
kind = "numeric"
answer = "last_number"
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "evaluators.toml"
    path.write_text(CONFIG)
    return path


def get(server, path):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=100)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def evaluators_of(server):
    """The process ids of the server's evaluators."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_text().split("\0")
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError):
            continue
        if parent == server.process.pid and "reward" in command and alive(int(folder.name)):
            found.append(int(folder.name))
    return found


def evaluated(count):
    return f'agentworld_evaluations_total{{evaluator="numeric",state="evaluated"}} {count}.0'


def judged(server, factory, answer):
    """A trajectory that says `answer`, once the evaluators have judged it."""
    with factory.trajectory(task={"reference": "7"}) as t:
        t.step(
            prompt_messages=[Message(role="user", content="?")],
            response_message=Message(role="assistant", content=answer),
        )
    try:
        until(lambda: factory.get_trajectory(t.trajectory_id).reward is not None, 60)
    except AssertionError:
        raise AssertionError(f"not judged: {get(server, '/readyz')} {server.text}") from None
    return factory.get_trajectory(t.trajectory_id).reward


def test_what_ends_is_judged_also_after_the_process_was_killed(tmp_path, config):
    with serve("--pool", f"sqlite:///{tmp_path}/pool.db", "--rewards", str(config), "--workers", "2") as server:
        server.ready()
        with Factory(server.url) as factory:
            assert judged(server, factory, "it is 7") == 1.0
            until(lambda: evaluated(1) in get(server, "/metrics"))
            [first] = evaluators_of(server)
            os.kill(first, signal.SIGKILL)
            assert judged(server, factory, "it is 8") == 0.0
            [second] = evaluators_of(server)
            assert second != first
        until(lambda: evaluated(2) in get(server, "/metrics"))
        assert 'agentworld_evaluator_resting{evaluator="numeric"} 0.0' in get(server, "/metrics")
        until(lambda: "agentworld_rewards_events_behind 0.0" in get(server, "/metrics"))
        assert json.loads(get(server, "/readyz")) == {
            "status": "ready",
            "rewards": "events, 0 events behind, 0 evaluators rest",
        }
        server.process.send_signal(signal.SIGTERM)
        assert server.ended() == 0
        until(lambda: not alive(second))
    assert "the process of the evaluators ended with -9; it begins again" in server.text


def test_a_gateway_tells_of_its_evaluators(tmp_path, config):
    with ScriptedEngine("7") as engine:
        options = ("--upstream", engine.url, "--model", "m", "--rewards", str(config))
        with serve("--pool", f"sqlite:///{tmp_path}/pool.db", *options) as server:
            server.ready()
            until(lambda: json.loads(get(server, "/readyz"))["rewards"]["begun"])
            told = json.loads(get(server, "/readyz"))["rewards"]
            assert told["evaluations"].keys() <= {"numeric"}
            assert told["resting"] == {}


def test_a_server_with_evaluators_that_cannot_run_does_not_start(tmp_path, config, refused):
    pool = f"sqlite:///{tmp_path}/pool.db"
    assert "which cannot see a pool in memory" in refused(
        "serve", "--port", 0, "--pool", "memory://", "--rewards", config
    )
    config.write_text(CONFIG.replace("numeric", "numerik"))
    assert "Did you mean numeric" in refused("serve", "--port", 0, "--pool", pool, "--rewards", config)
