"""One client's run and what it left in the pool."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from agentworld.client import Factory
from agentworld.records import Step, Trajectory
from agentworld.testing import ScriptedEngine
from tests.clients import installed
from tests.clients.guards import RecordingProxy

SECONDS = 120.0
"""How long a client may take; they take a few seconds."""


class Run(NamedTuple):
    """How a client ended."""

    code: int
    output: str
    errors: str


class Stage:
    """Where one client runs: `home` and `work` are folders, `url` is the gateway's address."""

    def __init__(
        self, engine: ScriptedEngine, factory: Factory, url: str, tokens: str, folder: Path, proxy: RecordingProxy
    ) -> None:
        self.engine, self.factory, self.url, self.tokens, self.proxy = engine, factory, url, tokens, proxy
        self.home, self.work = folder / "home", folder / "work"
        self.temporary = folder / "tmp"
        for made in (self.home, self.work, self.temporary):
            made.mkdir()
        self._guard_log = folder / "guard.log"
        self._seen = {found.trajectory_id for found in factory.all_trajectories()}
        engine.requests.clear()  # Replies in a list count from here.

    def environment(self, **more: str) -> dict[str, str]:
        """What a client finds: nothing of the user's, and a proxy that lets nothing through."""
        paths = [installed.programs(), Path(sys.executable).parent]
        return {
            "PATH": os.pathsep.join([*map(str, paths), "/usr/local/bin:/usr/bin:/bin"]),
            "HOME": str(self.home),
            "TMPDIR": str(self.temporary),
            "LANG": "C.UTF-8",
            "AGENTWORLD_URL": self.url,
            "HTTP_PROXY": self.proxy.url,
            "HTTPS_PROXY": self.proxy.url,
            "http_proxy": self.proxy.url,
            "https_proxy": self.proxy.url,
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
            "LOOPBACK_GUARD": str(self._guard_log),
            **more,
        }

    def run(self, *command: str, seconds: float = SECONDS, **more: str) -> Run:
        """Run a command in the work folder, in a group of its own that is ended with it."""
        process = subprocess.Popen(
            command,
            cwd=self.work,
            env=self.environment(**more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            output, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, errors = process.communicate()
            raise AssertionError(f"still running after {seconds} s:\n{output[-3000:]}\n{errors[-3000:]}") from None
        return Run(process.returncode, output, errors)

    def exec(self, *command: str, **more: str) -> tuple[Run, Trajectory]:
        """Run it by `agentworld exec`, which has to succeed; what it was and its trajectory."""
        run = self.run(sys.executable, "-m", "agentworld", "exec", "--", *command, **more)
        assert run.code == 0, f"{run.output[-3000:]}\n{run.errors[-3000:]}"
        found = re.search(r"^agentworld: (\S+) finished", run.errors, re.MULTILINE)
        assert found, run.errors
        return run, self.factory.get_trajectory(found[1])

    def python(self, source: str, **more: str) -> Run:
        """Run a program with the clients' interpreter, whose network is guarded."""
        file = self.work / "agent.py"
        file.write_text(source)
        return self.run(str(installed.python()), str(file), **{"PYTHONPATH": str(GUARD), **more})

    def exec_python(self, source: str, **more: str) -> tuple[Run, Trajectory]:
        """As `python`, by `agentworld exec`; the guard is in the client only."""
        file = self.work / "agent.py"
        file.write_text(source)
        guarded = ["env", f"PYTHONPATH={GUARD}", str(installed.python()), str(file)]
        return self.exec(*guarded, **more)

    def exec_program(self, name: str, *arguments: str, **more: str) -> tuple[Run, Trajectory]:
        """As `exec_python`, one of the programs beside these tests."""
        guarded = ["env", f"PYTHONPATH={GUARD}", str(installed.python()), str(PROGRAMS / name)]
        return self.exec(*guarded, *arguments, **more)

    def new_trajectories(self) -> list[Trajectory]:
        """Trajectories that were not there when the test began."""
        return [found for found in self.factory.all_trajectories() if found.trajectory_id not in self._seen]

    def steps(self, trajectory: Trajectory, source: str | None = None) -> list[Step]:
        """All steps with all they hold, in the order of their commits, checked against what the engine did.

        Each reply of the engine is one step with the same ids, none is there twice, and no call failed. `source`: where
        their ids come from, if that is not the server's mode.
        """
        include = ("tokens", "messages", "logprobs")
        steps = list(self.factory.all_steps(trajectory_id=trajectory.trajectory_id, include=include))
        sampled = [ids for request in self.engine.requests for ids in request.sampled_ids]
        prompts = [ids for request in self.engine.requests for ids in request.prompt_ids]
        assert all(request.finished for request in self.engine.requests)
        assert sorted(list(step.response_ids or ()) for step in steps) == sorted(sampled)
        assert sorted(list(step.prompt_ids or ()) for step in steps) == sorted(prompts)
        assert [step.excluded_reason for step in steps] == [None] * len(steps)
        assert {step.token_source for step in steps} == {source or self.tokens}
        exchanges = self.factory.list_exchanges(trajectory.trajectory_id)
        assert [exchange.error for exchange in exchanges] == [None] * len(steps)
        return steps

    def check_loopback(self) -> None:
        """The client asked for nothing beyond loopback."""
        assert self.proxy.asked == [], self.proxy.asked
        assert not self._guard_log.exists(), self._guard_log.read_text()


PROGRAMS = Path(__file__).parent / "programs"
GUARD = Path(__file__).parent / "guard"


def chain(steps: list[Step]) -> None:
    """The steps are one line without a fork, each prompt begins with the sequence before it where ids are ours."""
    places = {step.step_id: place for place, step in enumerate(steps)}
    assert [places.get(step.parent_step_id) for step in steps] == [None, *range(len(steps) - 1)]
    assert [step.fork_reason for step in steps] == [None] * len(steps)
    for before, after in itertools.pairwise(steps):
        extends(before, after)


def extends(before: Step, after: Step) -> None:
    """The later prompt begins with the earlier sequence, bit for bit."""
    assert before.prompt_ids is not None
    assert before.response_ids is not None
    assert after.prompt_ids is not None
    sequence = [*before.prompt_ids, *before.response_ids]
    assert list(after.prompt_ids[: len(sequence)]) == sequence


def roles(step: Step) -> list[str]:
    """The roles of a step's prompt."""
    return [message.role for message in step.prompt_messages or ()]


def tool_names(step: Step) -> list[str]:
    """The names of a step's tools."""
    return [tool["function"]["name"] for tool in step.tools or ()]


def called(step: Step) -> list[tuple[str, Any]]:
    """The calls that a reply makes: name and arguments as text."""
    message = step.response_message
    return [] if message is None else [(each.function.name, each.function.arguments) for each in message.tool_calls]


def results(step: Step) -> list[str]:
    """What tools answered in a step's prompt."""
    return [message.text for message in step.prompt_messages or () if message.role == "tool"]
