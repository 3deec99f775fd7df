"""kill -9 under load: what a client saw the end of is in the pool, once, and nothing keeps the port."""

import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from agentworld.pool import open_store
from tests.faults.load import Load

ROOT = Path(__file__).parent.parent.parent
ROUNDS = int(os.environ.get("AGENTWORLD_KILL_ROUNDS", "20"))


class Process:
    """A server process in a group of its own, with the address that it prints."""

    def __init__(self, *arguments):
        self.popen = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.lines = []
        self.url = None
        self._found = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._found.wait(60), "".join(self.lines)
        assert self.url, "".join(self.lines)

    def _read(self):
        for line in self.popen.stdout:
            self.lines.append(line)
            match = re.search(r"http://127\.0\.0\.1:\d+", line)
            if match and self.url is None:
                self.url = match.group()
                self._found.set()
        self._found.set()

    def children(self):
        listing = Path(f"/proc/{self.popen.pid}/task/{self.popen.pid}/children").read_text()
        return [int(pid) for pid in listing.split()]

    def end(self):
        try:
            os.killpg(self.popen.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.popen.wait(timeout=30)
        self.popen.stdout.close()
        self._reader.join(timeout=30)


def serve(pool, engine, port=0):
    return Process(
        "agentworld", "serve", "--pool", pool, "--upstream", engine.url, "--driver", "vllm", "--model", "m",
        "--tokens", "engine", "--port", str(port),
    )  # fmt: skip


def until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def port_is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex(("127.0.0.1", port)) != 0


def kill_something(server, chance):
    """kill -9 of the main process, a worker or the whole group; returns what was killed."""
    target = chance.choice(["main", "worker", "group"])
    if target == "main":
        os.kill(server.popen.pid, signal.SIGKILL)
    elif target == "worker":
        os.kill(chance.choice(server.children()), signal.SIGKILL)
    else:
        os.killpg(server.popen.pid, signal.SIGKILL)
    return target


def stored_questions(pool_url):
    """How often each question's reply is in the pool, aborted ones left out."""
    pool = open_store(pool_url)
    counted, cursor = Counter(), None
    try:
        while True:
            page = pool.list_steps(cursor=cursor, limit=1000, include=("messages", "tokens"))
            for step in page.items:
                if step.finish_reason != "abort":
                    number = int(step.prompt_messages[-1].text.split()[1])
                    assert f"heard question {number} " in step.response_message.text + " "
                    assert len(step.response_ids) == len(step.response_mask or step.response_ids)
                    counted[number] += 1
            cursor = page.next_cursor
            if cursor is None:
                return counted
    finally:
        pool.close()


def kill_rounds(pool, rounds, seed):
    chance = random.Random(seed)
    engine = Process("agentworld.testing.scripted_engine", "--script", "tests.faults.script:echo", "--model", "m")
    killed, seen, number = Counter(), set(), 0
    try:
        for _ in range(rounds):
            server = serve(pool, engine)
            port = urlsplit(server.url).port
            try:
                load = Load(server.url, number).start()
                already = len(load.seen)
                until(lambda load=load, already=already: len(load.seen) > already + 3)
                time.sleep(chance.uniform(0.0, 0.4))  # The moment of the kill is what is being varied.
                target = kill_something(server, chance)
                killed[target] += 1
                if target == "worker":
                    # The main process starts another worker, and clients are served again.
                    after = len(load.seen)
                    until(lambda load=load, after=after: len(load.seen) > after + 16)
                    os.killpg(server.popen.pid, signal.SIGKILL)
                until(lambda port=port: port_is_free(port))
                number = load.stop()
                seen |= load.seen
            finally:
                server.end()
        counted = stored_questions(pool)
    finally:
        engine.end()
    missing = sorted(seen - set(counted))
    twice = sorted(question for question, count in counted.items() if count > 1)
    assert missing == []
    assert twice == []
    assert len(seen) > rounds * 4
    return killed


def test_a_few_kills_lose_nothing(tmp_path):
    kill_rounds(f"sqlite:///{tmp_path}/pool.db", 3, seed=7)


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_twenty_kills_of_each_kind_lose_nothing(tmp_path):
    killed = kill_rounds(f"sqlite:///{tmp_path}/pool.db", ROUNDS, seed=1)
    assert set(killed) == {"main", "worker", "group"}


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_twenty_kills_of_each_kind_lose_nothing_on_postgres(postgres):
    killed = kill_rounds(postgres.fresh_pool_url(), ROUNDS, seed=1)
    assert set(killed) == {"main", "worker", "group"}
