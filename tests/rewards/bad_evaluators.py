"""Evaluators that go wrong in every way, for tests of what becomes of them."""

import os
import time

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
