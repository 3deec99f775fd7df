"""`agentworld serve` as the processes that it is."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from agentworld.client import Factory
from agentworld.testing import ScriptedEngine
from tests.alive import alive

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def until(condition, seconds=100):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def answers(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Server:
    """A process that prints the address of a server, in a group of its own; `lines` is all that it printed."""

    def __init__(self, command, environment=None):
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
            env={**os.environ, **(environment or {})},
        )  # fmt: skip
        self.lines, self.url = [], None
        self._said = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)
            found = re.search(r"serves (http://127\.0\.0\.1:\d+)", line)
            if found:
                self.url = found.group(1)
                self._said.set()
        self._said.set()

    def ready(self):
        assert self._said.wait(60), "it said nothing"
        assert self.url, "".join(self.lines)
        return self

    @property
    def port(self):
        return urlsplit(self.url).port

    @property
    def text(self):
        return "".join(self.lines)

    def workers(self):
        pid = self.process.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def ended(self):
        code = self.process.wait(timeout=150)
        self._reader.join(timeout=100)
        return code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(timeout=150)
        self._reader.join(timeout=100)
        self.process.stdout.close()


def posts_told(server):
    """POST requests that /metrics has counted, asked of whichever worker answers."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=100)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return sum(float(line.split()[-1]) for line in text.splitlines() if 'requests_total{method="POST"' in line)


def serve(*arguments, **environment):
    return Server([sys.executable, "-m", "agentworld", "serve", "--port", "0", *arguments], environment)


@pytest.fixture
def pool(tmp_path):
    return f"sqlite:///{tmp_path}/pool.db"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_a_signal(pool, number):
    with serve("--pool", pool, "--workers", "2") as server:
        server.ready()
        with Factory(server.url) as factory:
            with factory.trajectory() as t:
                t.step(prompt_ids=[1], response_ids=[2])
            assert factory.stats().steps == 1
        # Either worker tells of the requests of both: create, submit, complete.
        until(lambda: posts_told(server) == 3)
        assert {posts_told(server) for _ in range(8)} == {3}
        # A stream of events does not hold up the end.
        stream = http.client.HTTPConnection("127.0.0.1", server.port, timeout=100)
        stream.request("GET", "/api/v1/events", headers={"Accept": "text/event-stream"})
        assert stream.getresponse().readline().startswith(b":")
        workers = server.workers()
        assert len(workers) == 2
        os.kill(server.process.pid, number)
        assert server.ended() == 0
        stream.close()
        assert "cut off" not in server.text
        assert not any(alive(worker) for worker in workers)
        until(lambda: not answers(server.port))


def test_an_interrupt_of_the_whole_group_ends_it_properly(pool):
    with serve("--pool", pool) as server:
        server.ready()
        os.killpg(server.process.pid, signal.SIGINT)
        assert server.ended() == 0
        assert "Traceback" not in server.text


def test_killing_the_main_process_leaves_no_orphan_on_the_port(pool):
    with serve("--pool", pool, "--workers", "2") as server:
        server.ready()
        workers = server.workers()
        os.kill(server.process.pid, signal.SIGKILL)
        until(lambda: not any(alive(worker) for worker in workers))
        # A killed process is a zombie before its last thread has let go of the socket.
        until(lambda: not answers(server.port))


def test_a_killed_worker_is_started_again(pool):
    with serve("--pool", pool) as server:
        server.ready()
        (worker,) = server.workers()
        os.kill(worker, signal.SIGKILL)
        until(lambda: worker not in server.workers() and len(server.workers()) == 1)
        with Factory(server.url) as factory:
            until(lambda: answers(server.port))
            assert factory.stats().steps == 0
        os.kill(server.process.pid, signal.SIGTERM)
        assert server.ended() == 0


def connections_of(worker, port):
    """How many connections to that port the process has."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    there = {f"socket:[{row[9]}]" for row in rows if row[1].endswith(f":{port:04X}") and row[3] == "01"}
    held = 0
    for file in Path(f"/proc/{worker}/fd").iterdir():
        try:
            held += os.readlink(file) in there
        except FileNotFoundError:  # It was closed just now.
            pass
    return held


def test_workers_share_the_connections(pool):
    with serve("--pool", pool, "--workers", "2") as server:
        server.ready()
        clients = []

        def more():
            """Whether both workers have a connection; else there is a further one after it."""
            client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=100)
            clients.append(client)
            client.request("GET", "/healthz")
            assert client.getresponse().read()
            return all(connections_of(worker, server.port) for worker in server.workers())

        until(more)
        for client in clients:
            client.close()
        os.kill(server.process.pid, signal.SIGTERM)
        assert server.ended() == 0


def test_it_dies_with_its_parent_when_asked(pool):
    starter = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-m', 'agentworld', 'serve', '--port', '0', '--pool', sys.argv[1],"
        " '--die-with-parent'])\n"
        "child.wait()\n"
    )
    with Server([sys.executable, "-c", starter, pool]) as parent:
        parent.ready()
        (child,) = parent.workers()
        os.kill(parent.process.pid, signal.SIGKILL)
        until(lambda: not alive(child))
        until(lambda: not answers(parent.port))


def test_a_gateway_with_its_engine(pool):
    with ScriptedEngine(lambda request: "four", model="m") as engine:
        arguments = (
            "--pool",
            pool,
            "--upstream",
            engine.url,
            "--model",
            "m",
            "--driver",
            "builtin",
            "--tokens",
            "engine",
        )
        with serve(*arguments, AGENTWORLD_UPSTREAM_API_KEY="sk-very-secret") as server:
            server.ready()
            with Factory(server.url) as factory, factory.trajectory() as t:
                assert t.base_url.startswith(server.url)
                assert t.chat([{"role": "user", "content": "2+2?"}]).message.text == "four"
                assert len(factory.list_steps(trajectory_id=t.trajectory_id).items) == 1
            for pid in (server.process.pid, *server.workers()):
                assert b"sk-very-secret" not in Path(f"/proc/{pid}/cmdline").read_bytes()
            os.kill(server.process.pid, signal.SIGTERM)
            assert server.ended() == 0
            assert "sk-very-secret" not in server.text


def test_a_server_on_the_same_port_is_refused(pool):
    with serve("--pool", pool) as first:
        first.ready()
        with serve("--pool", pool, "--port", str(first.port)) as second:
            assert second.ended() == 1
            (line,) = second.lines
            assert "Address already in use" in line
        assert answers(first.port)


def test_a_worker_that_cannot_start_says_why_in_one_line(pool):
    arguments = ("--upstream", "http://127.0.0.1:9", "--model", "m", "--tokens", "token-in")
    with serve("--pool", pool, *arguments) as server:
        assert server.ended() == 1
        (line,) = server.lines
        assert "token-in needs the tokenizer of m" in line


def test_logs_are_json_away_from_a_terminal(pool):
    with ScriptedEngine(lambda request: "four", model="m") as engine:
        arguments = ("--upstream", engine.url, "--model", "m", "--driver", "builtin", "--tokens", "engine")
        with serve("--pool", pool, "--log-level", "debug", *arguments) as server:
            server.ready()
            records = [json.loads(line) for line in server.lines if line.startswith("{")]
            assert any(record["event"] == "model" and record["model"] == "m" for record in records)


def test_requests_that_do_not_end_are_cut_off():
    code = "import time; from agentworld.api.worker import cut_off_after; cut_off_after(0.05); time.sleep(60)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 1
    assert "cut off" in done.stdout + done.stderr
