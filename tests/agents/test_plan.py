"""Which rollouts a run has, and what groups are called."""

import pytest

from agentworld.agents.definition import LoopAgent
from agentworld.agents.plan import complete_one, group_name, plan_rollouts
from agentworld.records import Message, Trajectory, check_id
from agentworld.tasks.base import Task


class Numbers:
    name = "numbers"

    def tasks(self, count=None, *, split="train", seed=0):
        messages = (Message(role="user", content="a number"),)
        return [Task(task_id=f"n{i}", task_set=self.name, messages=messages) for i in range(count)]


def test_every_cell_once_and_groups_together():
    numbers = Numbers()
    plan = plan_rollouts("run", [(numbers, numbers.tasks(3))], [LoopAgent(), LoopAgent(name="b")], 4)
    assert len({(r.agent.name, r.task.task_id, r.index) for r in plan}) == len(plan) == 24
    groups = [r.group_id for r in plan]
    assert groups == [group for group in dict.fromkeys(groups) for _ in range(4)]
    assert {r.group_size for r in plan} == {4}


def test_a_plain_group_name_can_be_read():
    assert group_name("run", "loop", "sums", "sum-1") == "run:loop:sums:sum-1"


@pytest.mark.parametrize(
    "parts",
    [
        ("run", "loop", "sums", "a/b"),
        ("run", "loop", "sums", "a b"),
        ("run", "loop", "sums", "x" * 300),
        ("run", "loop", "s:ums", "a"),
        ("run", "loop", "s", "ums:a"),
        ("-run", "loop", "sums", "é" * 130),
    ],
)
def test_any_task_id_gives_a_group_name(parts):
    name = group_name(*parts)
    assert group_name(*parts) == name
    if not parts[0].startswith("-"):
        assert check_id(name, "group_id") == name


def test_different_groups_have_different_names():
    parts = [("r", "l", "s", "a/b"), ("r", "l", "s", "a-b"), ("r", "l", "s", "a b"), ("r", "l", "s:a", "b")]
    parts += [("r", "l", "s", "x" * 200 + "1"), ("r", "l", "s", "x" * 200 + "2"), ("r", "l:s", "a", "b")]
    assert len({group_name(*each) for each in parts}) == len(parts)


def test_what_counts_as_complete():
    def trajectory(name, status, reward=None):
        return Trajectory(trajectory_id=name, status=status, reward=reward)

    finished = trajectory("a", "finished", 0.0)
    assert complete_one([trajectory("b", "failed", 1.0), finished]) is finished
    assert complete_one([trajectory("c", "truncated", 0.0)]).trajectory_id == "c"
    assert complete_one([trajectory("d", "finished"), trajectory("e", "open", 1.0)]) is None
