"""A reward from a command: the last line that it prints is the number."""

from __future__ import annotations

import os
import signal
import subprocess
import threading

from agentworld.agents.variables import NO_KEY
from agentworld.errors import AgentWorldError
from agentworld.rewards.printed import PrintedReward, read_printed

TIMEOUT_SECONDS = 600.0


class RewardCommandError(AgentWorldError):
    """A reward command failed or printed no reward."""

    code = "reward_command_failed"
    status = 422


def run_reward_command(
    command: str, trajectory_id: str, *, api_key: str | None = None, timeout: float = TIMEOUT_SECONDS
) -> PrintedReward:
    """Run `command` in a shell with AGENTWORLD_TRAJECTORY_ID set; RewardCommandError says what it did wrong.

    It may run what the agent has just written, so it gets the trajectory's own `api_key`, not the user's.
    """
    env = {**os.environ, "AGENTWORLD_TRAJECTORY_ID": trajectory_id, "AGENTWORLD_API_KEY": api_key or NO_KEY}
    process, interrupted = _start(command, env)
    with process:
        try:
            if interrupted:
                raise KeyboardInterrupt
            said, _ = process.communicate(timeout=timeout)
        except BaseException as error:
            process.kill()
            if isinstance(error, subprocess.TimeoutExpired):
                raise RewardCommandError(f"{command!r} did not end within {timeout:g} s") from None
            raise
    if process.returncode != 0:
        raise RewardCommandError(f"{command!r} ended with code {process.returncode}")
    return parse_reward(said.decode("utf-8", "replace"))


def _start(command: str, env: dict[str, str]) -> tuple[subprocess.Popen[bytes], bool]:
    """The command's process, and whether Ctrl-C came while it started, when nobody could have ended it yet."""
    interrupts: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    catches = threading.current_thread() is threading.main_thread() and callable(before)
    if catches:
        signal.signal(signal.SIGINT, lambda number, frame: interrupts.append(number))
    try:
        process = subprocess.Popen(command, shell=True, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    finally:
        if catches:
            signal.signal(signal.SIGINT, before)
    return process, bool(interrupts)


def parse_reward(output: str) -> PrintedReward:
    """The reward in the last line: a number, or a JSON object with `reward` and perhaps `name`, the rest details."""
    try:
        return read_printed(output)
    except ValueError as error:
        raise RewardCommandError(f"the reward command: {error}") from None
