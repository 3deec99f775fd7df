"""The process that keeps workers: each test is a program of its own, whose workers say that they have begun."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.alive import alive
from tests.http_server.serving import OUTER

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc, and counts on forks")

PROGRAM = """
import os, signal, sys, time
from agentworld.http_server import workers

workers.PAUSE = 0.01

def say(text):
    os.write(1, f"{text}\\n".encode())

def work():
    say(f"worker {os.getpid()}")
    while True:
        time.sleep(100)

def begun():
    say(f"begun {len(kept._processes)}")
    kept.established = True

count, end_seconds = 1, 60.0
"""
RUN = """
kept = workers.Workers(count, work, end_seconds)
status = kept.run(begun)
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, "the handlers of before"
assert signal.set_wakeup_fd(-1) == -1, "the descriptor of before"
sys.exit(status)
"""


class Program:
    """Keeps workers, as `more` says; `lines` is what it and they printed."""

    def __init__(self, more=""):
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM + more + RUN],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        self.lines, self.workers = [], []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line)
                if line.startswith("worker "):
                    self.workers.append(int(line.split()[1]))
                self._news.notify_all()

    @property
    def text(self):
        return "".join(self.lines)

    def begun(self, count):
        """The latest of `count` workers that have begun in all."""
        self._until(lambda: len(self.workers) == count and "begun" in self.text)
        return self.workers[-1]

    def says(self, words):
        self._until(lambda: words in self.text)

    def _until(self, condition):
        with self._news:
            assert self._news.wait_for(condition, OUTER), self.text

    def told(self, number):
        """Its exit status, after this signal."""
        os.kill(self.process.pid, number)
        return self.ended()

    def ended(self):
        """Its exit status; no worker is left by then."""
        status = self.process.wait(OUTER)
        self._reader.join(OUTER)
        assert not self._reader.is_alive(), "a worker still has the output"
        assert not any(alive(worker) for worker in self.workers)
        return status

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(OUTER)
        self._reader.join(OUTER)
        self.process.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all(number):
    with Program("count = 3") as program:
        program.begun(3)
        assert "begun 3" in program.text
        assert program.told(number) == 0


def test_a_worker_that_dies_is_started_again_and_leaves_no_zombie():
    with Program() as program:
        first = program.begun(1)
        os.kill(first, signal.SIGKILL)
        second = program.begun(2)
        os.kill(second, signal.SIGKILL)
        program.begun(3)
        assert not any(Path(f"/proc/{pid}").exists() for pid in (first, second))
        assert program.text.count("worker_ended") == 2
        assert program.told(signal.SIGTERM) == 0
        assert len(program.workers) == 3


def test_a_worker_that_lived_for_a_while_is_started_again_without_a_pause():
    with Program("workers.SOON, workers.PAUSE = 0.0, 1e6") as program:
        os.kill(program.begun(1), signal.SIGKILL)
        program.begun(2)
        assert program.told(signal.SIGTERM) == 0
        assert len(program.workers) == 2


WAITS = """
waiting = workers.wait

def wait(what, timeout):
    say(f"waits {timeout}")
    return waiting(what, timeout)

workers.wait = wait
"""


def test_a_worker_that_ends_soon_is_started_again_after_a_pause():
    with Program(WAITS + "workers.SOON, workers.PAUSE = 1e6, 1e6") as program:
        os.kill(program.begun(1), signal.SIGKILL)
        program.says("waits 99")
        assert program.told(signal.SIGTERM) == 0
        assert len(program.workers) == 1


def test_who_is_due_first_is_started_first():
    pauses = (
        WAITS
        + """
def wait(what, timeout):
    say(f"waits {timeout}")
    if timeout is not None:
        workers.PAUSE = 1e3
    return waiting(what, timeout)

workers.wait = wait
workers.SOON, workers.PAUSE, count = 1e9, 1e6, 2
"""
    )
    with Program(pauses) as program:
        program.begun(2)
        os.kill(program.workers[0], signal.SIGKILL)
        program.says("waits 9999")
        os.kill(program.workers[1], signal.SIGKILL)
        program.says("waits 999.")
        assert program.told(signal.SIGTERM) == 0


SIGNAL_WHILE_ONE_DIES = (
    WAITS
    + """
def wait(what, timeout):
    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    os.kill(os.getpid(), signal.SIGTERM)
    return waiting(what, timeout)

workers.wait = wait

def work(): say(f"worker {os.getpid()}")
def begun(): say("begun")
"""
)


def test_a_worker_that_ends_with_the_server_is_no_failure():
    with Program(SIGNAL_WHILE_ONE_DIES) as program:
        assert program.ended() == 0


def test_a_worker_does_not_wake_the_process_that_keeps_it():
    more = "def work():\n    say(f'wakes {signal.set_wakeup_fd(-1)}')\n    time.sleep(100)\n"
    with Program(more) as program:
        program.says("wakes -1\n")
        assert program.told(signal.SIGTERM) == 0


ONE_DIES = """
count = 2

def work():
    say(f"worker {os.getpid()}")
    try:
        os.close(os.open(sys.argv[0], os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        time.sleep(100)
    sys.exit(0)
"""


def test_the_end_of_one_before_all_is_established_ends_all(tmp_path):
    more = f"sys.argv[0] = {str(tmp_path / 'first')!r}{ONE_DIES}\ndef begun(): say('begun')\n"
    with Program(more) as program:
        assert program.ended() == 1
        assert "worker_ended" not in program.text


DEAF = """
def work():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say(f"worker {os.getpid()}")
    while True:
        time.sleep(100)
"""


def test_a_worker_that_does_not_end_is_killed():
    with Program(DEAF + "end_seconds = 0.05") as program:
        program.begun(1)
        assert program.told(signal.SIGTERM) == 1


def test_a_worker_has_its_time_to_end():
    slow = """
def end(number, frame):
    time.sleep(0.05)
    say("ended well")
    os._exit(0)

def work():
    signal.signal(signal.SIGTERM, end)
    say(f"worker {os.getpid()}")
    while True:
        time.sleep(100)
"""
    with Program(slow) as program:
        program.begun(1)
        assert program.told(signal.SIGTERM) == 0
        assert "ended well" in program.text


BEFORE_A_FORK = """
forking = os.fork
def fork():
    os.kill(os.getpid(), signal.SIGTERM)
    return forking()
os.fork = fork
"""
AFTER_THE_START = "def begun(): os.kill(os.getpid(), signal.SIGTERM)\n"


@pytest.mark.parametrize("more", [BEFORE_A_FORK, AFTER_THE_START], ids=["before a fork", "after the start"])
def test_a_signal_during_the_start_ends_all(more):
    with Program("count = 2\n" + more) as program:
        assert program.ended() == 0


def test_a_signal_to_a_worker_that_was_just_forked_is_not_lost():
    """It still has the ways of the process that forked it, which take a signal as that one's own."""
    more = "os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGTERM))\ndef begun(): pass\n"
    with Program(more) as program:
        assert program.ended() == 1
        assert program.workers == []


FORKS = """
forks, forking = [], os.fork

def fork():
    forks.append(1)
    if len(forks) in failing:
        raise BlockingIOError(11, "Resource temporarily unavailable")
    return forking()

os.fork = fork
"""


def test_a_fork_that_fails_is_tried_again():
    with Program(FORKS + "failing = (2, 3)") as program:
        os.kill(program.begun(1), signal.SIGKILL)
        program.begun(2)
        assert program.told(signal.SIGTERM) == 0
        assert program.text.count("worker_not_started") == 2


def test_a_fork_that_fails_at_the_start_ends_those_that_run():
    with Program(FORKS + "count = 3; failing = (3,)") as program:
        assert program.ended() == 1
        assert "Resource temporarily unavailable" in program.text
        assert "begun" not in program.text


def test_what_is_called_after_the_start_may_fail():
    with Program("def begun(): raise ValueError('not begun')") as program:
        assert program.ended() == 1
        assert "not begun" in program.text
