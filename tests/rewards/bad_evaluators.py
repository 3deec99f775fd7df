"""Evaluators that go wrong in every way, for tests of what becomes of them."""

import os
import signal
import threading
import time
from pathlib import Path

from agentworld.rewards import Verdict, evaluator


@evaluator("length_of_reply", values=("characters", "words"), version="3")
def length_of_reply(run, factor=1.0):
    text = run.steps[-1].response_message.text
    return {"characters": len(text) * factor, "words": len(text.split()) * factor}


@evaluator("first_wins", scope="group")
def first_wins(group):
    return {member.trajectory.trajectory_id: float(place == 0) for place, member in enumerate(group.members)}


@evaluator("each_step", scope="step")
def each_step(run):
    return {step.step_id: Verdict({"reward": 0.5}, {"place": place}) for place, step in enumerate(run.steps)}


@evaluator("what_it_sees", needs=("a",))
def what_it_sees(run):
    record = run.trajectory
    seen = {"rewards": record.rewards, "reward": record.reward, "labels": record.labels}
    return Verdict({"reward": 1.0}, {**seen, "of_steps": run.steps[0].rewards})


@evaluator("what_it_sees_of_groups", scope="group")
def what_it_sees_of_groups(group):
    return {member.trajectory.trajectory_id: what_it_sees(member) for member in group.members}


def finished(run):
    return float(run.trajectory.status == "finished")


def not_judged(run):
    return None


def raises(run):
    raise ValueError("no such thing")


def exits(run):
    raise SystemExit(0)


def dies(run):
    os._exit(0)


def not_a_number(run):
    return float("nan")


def a_list(run):
    return [1.0]


@evaluator("half_a_group", scope="group")
def half_a_group(group):
    return {group.members[0].trajectory.trajectory_id: 1.0}


def hangs(run):
    time.sleep(3600)


def spins(run):
    while True:
        pass


def forks(run):
    while True:
        os.fork()


def prints_a_gigabyte(run):
    piece = "x" * (1 << 20)
    for _ in range(1024):
        print(piece)
    return 1.0


def eats_memory(run):
    return len(bytearray(16 << 30))


def says_much(run):
    return Verdict({"reward": 1.0}, {"text": "x" * (1 << 27)})


def leaves_its_folder(run):
    there = os.getcwd()
    os.chdir("/")
    return float(there != "/")


_alarms = []


def leaves_an_alarm(run):
    if _alarms:
        time.sleep(0.4)
    _alarms.append(signal.setitimer(signal.ITIMER_REAL, 0.2))
    return float(len(_alarms))


def leaves_an_end(run, flag):
    if not Path(flag).exists():
        Path(flag).touch()
        threading.Timer(0.2, os._exit, (0,)).start()
        return 0.0
    time.sleep(0.5)
    return 1.0


_calls = []


def counts_its_calls(run):
    _calls.append(run)
    return float(len(_calls))


def counts_all_calls(run):
    return counts_its_calls(run)


class Unusual(BaseException):
    """What no `except Exception` catches."""


def raises_unusually(run):
    raise Unusual("as some libraries do")


def interrupts(run):
    raise KeyboardInterrupt
