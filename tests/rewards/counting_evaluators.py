"""Evaluators that leave a line in a file for each time that they are called, whichever process that is in."""

import os
import threading
import time
from pathlib import Path

from agentworld.rewards import Verdict, evaluator


def _count(log, what):
    number = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(number, f"{what}\n".encode())
    os.close(number)


def counted(log):
    """What was called so far, in order."""
    return Path(log).read_text().split() if Path(log).exists() else []


def said(run):
    return run.steps[-1].response_message.text


def number(run, log, fails_on="", slow=0.0):
    _count(log, run.trajectory.trajectory_id)
    time.sleep(slow)
    if fails_on and fails_on in said(run):
        raise ValueError(f"it says {fails_on}")
    return Verdict({"number": float(said(run).split()[-1])}, {"said": said(run)})


@evaluator("half", scope="group")
def half(group, log):
    _count(log, group.group_id)
    return {group.members[0].trajectory.trajectory_id: 1.0}


@evaluator("progress", scope="step")
def progress(run, log):
    _count(log, run.trajectory.trajectory_id)
    return {step.step_id: float(place) for place, step in enumerate(run.steps)}


released = threading.Event()
"""Lets those go on that `stuck` holds."""


def stuck(run):
    released.wait()
    return 1.0


def waits_for(run, log, gate):
    """Waits for the file `gate`."""
    _count(log, run.trajectory.trajectory_id)
    while not Path(gate).exists():
        time.sleep(0.02)
    return 1.0


down = threading.Event()
"""While it is set, `flaky` and `shaky` fail."""


def flaky(run, log):
    _count(log, run.trajectory.trajectory_id)
    if down.is_set():
        raise ValueError("it is down")
    return 1.0


@evaluator("shaky", values=("correct",))
def shaky(run, log):
    return {"correct": flaky(run, log)}
