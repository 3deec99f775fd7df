"""The process beside a server's workers that runs its evaluators: begun again where it ends, ended with the server."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from agentworld.config import ServeSettings
from agentworld.errors import ConfigError

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between an end and the next beginning; doubled each time that it ends soon."""
END_SECONDS = 10.0
_log = logging.getLogger("agentworld.rewards")


def follower_of(settings: ServeSettings) -> str | None:
    """The name under which the evaluators of the settings say where they are; ConfigError where these are wrong."""
    if not settings.reward_files:
        return None
    from agentworld.cli.reward_runs import read_plan, run_name
    from agentworld.rewards.running import RunSettings, follower_name

    if settings.pool.startswith("memory"):
        raise ConfigError(
            "evaluators run in a process of their own, which cannot see a pool in memory",
            path="rewards",
            hint="Use a sqlite:/// or postgresql:// pool",
        )
    paths = [Path(each) for each in settings.reward_files]
    return follower_name(read_plan(paths), RunSettings(name=run_name(paths)))


@contextmanager
def rewards_beside(settings: ServeSettings) -> Iterator[None]:
    """Have the evaluators of the settings, where there are any, follow the pool for as long as the block runs."""
    if not settings.reward_files:
        yield
        return
    keeper = _Keeper(settings.reward_files, settings.pool)
    keeper.begin()
    keeper.start()
    try:
        yield
    finally:
        keeper.end()


class _Keeper(threading.Thread):
    """Begins the process again. The kernel ends it with the thread that began it, however that ends."""

    def __init__(self, config: Sequence[str], pool: str) -> None:
        super().__init__(name="rewards", daemon=True)
        run = [sys.executable, "-m", "agentworld", "reward", "run"]
        self._command = [*run, "--follow", "--die-with-parent", "--", *config]
        # Not on its command line, where everybody could read the password of a pool.
        self._environment = {**os.environ, "AGENTWORLD_POOL": pool}
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Begin the process, unless it is to end. Before the server forks its workers: one that is forked meanwhile
        holds the pipe open by which Popen hears that the process has begun, so that it never does.
        """
        with self._lock:
            if not self._ending.is_set():
                self._process = subprocess.Popen(
                    self._command, env=self._environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
                )

    def run(self) -> None:
        """Until `end`."""
        pause = FIRST_PAUSE
        while self._process is not None:
            began = time.monotonic()
            code = self._process.wait()
            if self._ending.is_set():
                return
            pause = FIRST_PAUSE if time.monotonic() - began > LONGEST_PAUSE else pause
            _log.error("the process of the evaluators ended with %s; it begins again in %g s", code, pause)
            if self._ending.wait(pause):
                return
            pause = min(pause * 2, LONGEST_PAUSE)
            self.begin()

    def end(self) -> None:
        """End the process, by force where it takes too long."""
        with self._lock:
            self._ending.set()
            process = self._process
        if process is not None:
            process.terminate()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.join()
