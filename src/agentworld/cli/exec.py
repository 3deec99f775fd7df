"""`agentworld exec -- COMMAND`: one run of any agent as one trajectory, rewarded and completed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple, Self

import typer

from agentworld.agents.failed_calls import failed_of, told
from agentworld.agents.reward_command import run_reward_command
from agentworld.agents.stop_signals import STOPPING, Stopped
from agentworld.agents.variables import agent_environment
from agentworld.cli import output
from agentworld.client.factory import Factory
from agentworld.errors import AgentWorldError, ConfigError
from agentworld.records import NewTrajectory, Reward, TerminalStatus, Trajectory

app = typer.Typer(add_completion=False, rich_markup_mode=None)
KILL_AFTER = 5.0


@app.command(context_settings={"allow_interspersed_args": False})
def exec_(
    command: Annotated[list[str], typer.Argument(help="The agent's command line, after --.", metavar="COMMAND")],
    url: Annotated[str, typer.Option(envvar="AGENTWORLD_URL", help="Address of `agentworld serve`.")] = (
        "http://127.0.0.1:8400"
    ),
    reward_cmd: Annotated[
        str | None,
        typer.Option(help="Shell command whose last line of output is the reward: a number, or JSON with `reward`."),
    ] = None,
    group: Annotated[str | None, typer.Option(help="Group that the trajectory belongs to.")] = None,
    agent: Annotated[str | None, typer.Option(help="Name of the agent (default: the command's).")] = None,
    channel: Annotated[str, typer.Option(help="Channel of the pool.")] = "train",
    timeout: Annotated[float | None, typer.Option(help="Seconds after which the command is ended.", min=0.1)] = None,
    api_key: Annotated[str | None, typer.Option(envvar="AGENTWORLD_API_KEY", help="Key of the server.")] = None,
) -> int:
    """Run one agent command as one trajectory.

    Sets OPENAI_BASE_URL, ANTHROPIC_BASE_URL and their keys for the command; its exit code is this command's. Where it
    fails after Ctrl-C, the trajectory is abandoned.
    """
    if shutil.which(command[0]) is None:
        raise ConfigError(f"there is no program {command[0]!r}", hint="Give the agent's command line after --")
    name = agent or os.path.basename(command[0])
    factory = Factory(url, api_key=api_key)
    started = factory.start_trajectory(
        NewTrajectory(group_id=group, agent=name, channel=channel, metadata={"command": command})
    )
    trajectory_id, base_url = started.trajectory_id, started.base_url
    status: TerminalStatus
    reward: float | None = None
    try:
        if base_url is None:
            raise ConfigError(f"{url} serves no model", hint="Start `agentworld serve` with --upstream and --model")
        environment = agent_environment(os.environ, command[0], base_url, started.api_key, trajectory_id)
        code, timed_out, interrupted = run_child(command, environment, timeout)
        if timed_out:
            status = "truncated"
        else:
            status = "finished" if code == 0 else ("abandoned" if interrupted else "failed")
        if reward_cmd is not None and status in ("finished", "truncated"):
            reward = put_reward(factory, trajectory_id, reward_cmd, started.api_key)
    except KeyboardInterrupt as stop:
        code = 128 + (stop.number if isinstance(stop, Stopped) else signal.SIGINT)
        status = "abandoned"
    except BaseException:
        factory.complete_trajectory(trajectory_id, "failed")
        raise
    ended = factory.complete_trajectory(trajectory_id, status)
    rewarded = f", reward {reward:g}" if reward is not None else ""
    say(
        f"{trajectory_id} {status}, {ended.step_count} step{'' if ended.step_count == 1 else 's'}{rewarded}."
        f" Look at it: agentworld trajectories show {trajectory_id} --url {url}"
    )
    tell_of_calls(url, started.api_key, ended, base_url)
    return code


def tell_of_calls(url: str, session_key: str | None, ended: Trajectory, base_url: str | None) -> None:
    """A warning where calls failed, with the last one's error, or where none came at all.

    `session_key`: the trajectory's own, which may read its calls where a key that only writes may not.
    """
    try:
        with Factory(url, api_key=session_key) as own:
            failures = failed_of(own.list_exchanges(ended.trajectory_id))
    except AgentWorldError as error:
        say(f"warning: whether calls failed cannot be told: {error.one_line()}")
        return
    if failures:
        say(f"warning: {output.plain(told(failures, ended.step_count))}")
    elif ended.step_count == 0:
        say(
            f"warning: no call came through the gateway and got a reply. Where the command said nothing of an error, it"
            f" did not use {base_url}: it must read OPENAI_BASE_URL or ANTHROPIC_BASE_URL, or be told its base URL by"
            " an option of its own. Nor is a call on record that did not send its API key, or no JSON"
        )


def put_reward(factory: Factory, trajectory_id: str, reward_cmd: str, api_key: str | None) -> float | None:
    """Run the reward command and set what it says; a warning, and None, where it says nothing usable."""
    try:
        found = run_reward_command(reward_cmd, trajectory_id, api_key=api_key)
    except AgentWorldError as error:
        say(f"warning: no reward: {error.one_line()}")
        return None
    details: dict[str, Any] = {"command": reward_cmd, **found.details}
    factory.add_rewards(
        [Reward(value=found.value, trajectory_id=trajectory_id, name=found.name, source="command", details=details)]
    )
    return found.value


def say(text: str) -> None:
    """One line on stderr, which the command's own output is not mixed with."""
    print(f"agentworld: {text}", file=sys.stderr, flush=True)


class Ended(NamedTuple):
    """How a child ended: its exit code as a shell gives it, whether its time ran out, whether we were told to stop."""

    code: int
    timed_out: bool
    interrupted: bool


def run_child(command: Sequence[str], env: dict[str, str], timeout: float | None) -> Ended:
    """Run with our stdio and wait.

    At a terminal the child stays in our process group, so that it can use the terminal; elsewhere it gets its own,
    which is ended as a whole.
    """
    at_terminal = sys.stdin is not None and sys.stdin.isatty()
    with Forwarding(at_terminal) as signals:
        try:
            child = subprocess.Popen(command, env=env, process_group=None if at_terminal else 0)
        except OSError as error:
            raise ConfigError(
                f"cannot run {command[0]!r}: {error.strerror}",
                hint="A script needs #! and its program in the first line",
            ) from None
        signals.forward_to(child)
        try:
            code = child.wait(timeout)
            timed_out = False
        except subprocess.TimeoutExpired:
            timed_out = True
            send(child, signal.SIGTERM, at_terminal)
            try:
                code = child.wait(KILL_AFTER)
            except subprocess.TimeoutExpired:
                send(child, signal.SIGKILL, at_terminal)
                code = child.wait()
    if not at_terminal:
        send(child, signal.SIGKILL, at_terminal)
    return Ended(128 - code if code < 0 else code, timed_out, bool(signals.heard))


def send(child: subprocess.Popen[bytes], number: int, at_terminal: bool) -> None:
    """Signal the child, or its whole group where it has one."""
    try:
        if at_terminal:
            child.send_signal(number)
        else:
            os.killpg(child.pid, number)
    except ProcessLookupError:
        pass


class Forwarding:
    """Signals handed on to the child; one that comes while it starts, once it is there. `heard`: those that came.

    A terminal sends its Ctrl-C to the child by itself.
    """

    def __init__(self, at_terminal: bool) -> None:
        self.heard: list[int] = []
        self._kept: list[int] = []
        self._at_terminal = at_terminal
        self._child: subprocess.Popen[bytes] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._hear) for number in STOPPING}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def forward_to(self, child: subprocess.Popen[bytes]) -> None:
        """From here on signals go to `child`, and those that came before are sent now."""
        self._child = child
        while self._kept:
            self._send(child, self._kept.pop(0))

    def _hear(self, number: int, frame: object) -> None:
        self.heard.append(number)
        if self._child is None:
            self._kept.append(number)
        else:
            self._send(self._child, number)

    def _send(self, child: subprocess.Popen[bytes], number: int) -> None:
        if not (self._at_terminal and number == signal.SIGINT):
            send(child, number, self._at_terminal)
