"""Rewards from commands."""

import signal
import subprocess

import pytest

from agentworld.agents.reward_command import RewardCommandError, parse_reward, run_reward_command
from agentworld.agents.stop_signals import Stopped
from tests.alive import wait_gone


@pytest.mark.parametrize(
    ("output", "value", "name", "details"),
    [
        ("0.5\n", 0.5, "reward", {}),
        ("running tests\n\n  1\n\n", 1.0, "reward", {}),
        ('{"reward": -2, "name": "tests", "passed": 3}', -2.0, "tests", {"passed": 3}),
    ],
)
def test_the_last_line_counts(output, value, name, details):
    found = parse_reward(output)
    assert (found.value, found.name, found.details) == (value, name, details)


@pytest.mark.parametrize(
    "output",
    ["", "ok", "nan", "inf", "{}", '{"reward": "1"}', '{"reward": true}', '{"reward"', '{"reward": 1, "name": 2}'],
)
def test_what_is_no_reward_is_refused(output):
    with pytest.raises(RewardCommandError):
        parse_reward(output)


def test_the_command_knows_its_trajectory():
    found = run_reward_command('echo "{\\"reward\\": 1, \\"of\\": \\"$AGENTWORLD_TRAJECTORY_ID\\"}"', "trj_1")
    assert found.details == {"of": "trj_1"}


def test_the_command_gets_no_key_of_the_users(monkeypatch):
    monkeypatch.setenv("AGENTWORLD_API_KEY", "the users own")
    said = 'echo "{\\"reward\\": 1, \\"key\\": \\"$AGENTWORLD_API_KEY\\"}"'
    assert run_reward_command(said, "trj_1", api_key="its own").details == {"key": "its own"}
    assert run_reward_command(said, "trj_1").details == {"key": "agentworld"}


def test_a_failing_command():
    with pytest.raises(RewardCommandError, match="code 7"):
        run_reward_command("echo 1; exit 7", "trj_1")


def test_a_command_that_does_not_end():
    with pytest.raises(RewardCommandError, match="did not end"):
        run_reward_command("exec sleep 60", "trj_1", timeout=0.3)


def signalling(monkeypatch, place):
    """Popen with a signal while it starts ("start"), or once its command has ended ("end"); the processes."""
    started = []

    class Signalling(subprocess.Popen):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            started.append(self)
            if place == "start":
                signal.raise_signal(signal.SIGINT)

        def __exit__(self, *args):
            if place == "end":
                signal.raise_signal(signal.SIGINT)
            return super().__exit__(*args)

    monkeypatch.setattr(subprocess, "Popen", Signalling)
    return started


def test_ctrl_c_while_the_command_starts_ends_it(monkeypatch):
    """The signal comes when the process is there and nobody knows it yet."""
    started = signalling(monkeypatch, "start")
    with pytest.raises(KeyboardInterrupt):
        run_reward_command("exec sleep 600", "trj_1")
    assert [process.returncode for process in started] == [-signal.SIGKILL]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(("command", "timeout"), [("echo 1", 100), ("exec sleep 600", 0.1)])
def test_ctrl_c_after_the_commands_end_is_not_lost(monkeypatch, command, timeout):
    signalling(monkeypatch, "end")
    with pytest.raises(KeyboardInterrupt):
        run_reward_command(command, "trj_1", timeout=timeout)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_all_that_the_command_started(monkeypatch, number):
    """The signal comes while the command's output is awaited, which a process that it started holds open."""
    before = signal.getsignal(number)
    started = []

    class Communicating(subprocess.Popen):
        def communicate(self, *args, **kwargs):
            started.append((self, self.stdout.readline()))
            signal.raise_signal(number)
            return super().communicate(*args, **kwargs)

    monkeypatch.setattr(subprocess, "Popen", Communicating)
    with pytest.raises(Stopped) as stopped:
        run_reward_command("sleep 600 & echo $!; wait", "trj_1")
    assert stopped.value.number == number
    ((process, child),) = started
    assert process.returncode == -signal.SIGKILL
    wait_gone(int(child))
    assert signal.getsignal(number) is before
