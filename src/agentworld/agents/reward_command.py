"""A reward from a command: the last line that it prints is the number."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess

from agentworld.agents.stop_signals import StopSignals
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

    A signal that stops us ends it first and is Stopped then, a KeyboardInterrupt.

    It may run what the agent has just written, so it gets the trajectory's own `api_key`, not the user's.
    """
    env = {**os.environ, "AGENTWORLD_TRAJECTORY_ID": trajectory_id, "AGENTWORLD_API_KEY": api_key or NO_KEY}
    with StopSignals() as signals:
        # Its own process group: what the command started is ended with it.
        process = subprocess.Popen(
            command, shell=True, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, process_group=0
        )
        with process:
            try:
                with signals.raised():
                    said, _ = process.communicate(timeout=timeout)
            except BaseException as error:
                end_group(process)
                if isinstance(error, subprocess.TimeoutExpired):
                    raise RewardCommandError(f"{command!r} did not end within {timeout:g} s") from None
                raise
    if process.returncode != 0:
        raise RewardCommandError(f"{command!r} ended with code {process.returncode}")
    return parse_reward(said.decode("utf-8", "replace"))


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group that `process` leads, if it has not been waited for."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def parse_reward(output: str) -> PrintedReward:
    """The reward in the last line: a number, or a JSON object with `reward` and perhaps `name`, the rest details."""
    try:
        return read_printed(output)
    except ValueError as error:
        raise RewardCommandError(f"the reward command: {error}") from None
