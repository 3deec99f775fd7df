"""The ready sets: same call, same tasks; disjoint splits; a strict checker; a teacher that is always right."""

import json
import re
from types import SimpleNamespace

import msgspec
import pytest

from agentworld.errors import ConfigError
from agentworld.tasks import Environment, Task, ready_task_set
from agentworld.tasks.environments import Calculator, Converter
from agentworld.tasks.ready import READY
from agentworld.tasks.teacher import DIRECT_SHARE, answers_directly, reply

TYPES = "error: expected number as text, source and target as whole numbers"
CALL = re.compile(r"<tool_call>\n(.*)\n</tool_call>", re.DOTALL)


@pytest.fixture(params=sorted(READY))
def task_set(request):
    return ready_task_set(request.param)


def play_teacher(task_set, task):
    """The teacher's replies to a task, tools answered by the task's environment."""
    environment = task_set.environment(task)
    messages = [{"role": "user", "content": task.messages[0].text}]
    replies = []
    while True:
        said = reply(SimpleNamespace(messages=messages))
        replies.append(said)
        call = CALL.fullmatch(said)
        if call is None:
            return replies
        named = json.loads(call[1])
        observed = environment.step(named["name"], json.dumps(named["arguments"]))
        messages += [{"role": "assistant", "content": said}, {"role": "tool", "content": observed.content}]


def test_the_same_call_gives_the_same_tasks(task_set):
    assert task_set.tasks(20, seed=3) == ready_task_set(task_set.name).tasks(20, seed=3)
    assert task_set.tasks(20, seed=3)[:5] == task_set.tasks(5, seed=3)


def test_tasks_of_a_draw_are_different_ones(task_set):
    tasks = task_set.tasks(300)
    assert len({task.task_id for task in tasks}) == len({task.messages for task in tasks}) == 300


def test_seeds_next_to_each_other_share_little(task_set):
    first, second = ({task.task_id for task in task_set.tasks(100, seed=seed)} for seed in (0, 1))
    assert len(first & second) < 10


def test_no_seed_brings_a_held_out_task_into_training(task_set):
    held_out = {task.messages for seed in range(3) for task in task_set.tasks(200, split="heldout", seed=seed)}
    train = {task.messages for seed in range(3) for task in task_set.tasks(1000, split="train", seed=seed)}
    assert not held_out & train


def test_a_task_survives_its_record(task_set):
    (task,) = task_set.tasks(1, split="heldout", seed=4)
    record = json.loads(msgspec.json.encode(task.payload()))
    assert msgspec.convert(record, Task) == task
    assert task.provenance["seed"] == 4
    assert task.split == "heldout"


def test_only_the_right_answer_behind_its_mark_counts(task_set):
    (task,) = task_set.tasks(1)
    right = task.reference
    assert task_set.check(task, f"I think.\nAnswer: {right}").value == 1.0
    assert task_set.check(task, f"answer: {right}\n").value == 1.0
    assert task_set.check(task, f"Answer: {right}1").value == 0.0
    assert task_set.check(task, f"Answer: {right}\nAnswer: 0").value == 0.0
    for silent in (right, "", "Answer:", "Answer:\n" + right, None):
        assert task_set.check(task, silent).value == 0.0


def test_the_teacher_is_always_right_in_both_of_its_ways(task_set):
    direct = 0
    tasks = task_set.tasks(150)
    for task in tasks:
        replies = play_teacher(task_set, task)
        assert task_set.check(task, replies[-1]).value == 1.0
        assert (len(replies) == 1) == answers_directly(task.messages[0].text)
        direct += len(replies) == 1
    assert abs(direct / len(tasks) - DIRECT_SHARE) < 0.15


def test_arithmetic_takes_several_turns_with_the_tool():
    task_set = ready_task_set("arithmetic")
    worked = [task for task in task_set.tasks(30) if not answers_directly(task.messages[0].text)]
    assert {len(play_teacher(task_set, task)) for task in worked} == {3}


def test_the_teacher_says_so_where_it_does_not_know_the_task():
    assert "ready task sets" in reply(SimpleNamespace(messages=[{"role": "user", "content": "hello"}]))


def test_the_teacher_reads_text_parts():
    (task,) = ready_task_set("arithmetic").tasks(1)
    parts = [{"type": "text", "text": task.messages[0].text}]
    as_text = [{"role": "user", "content": task.messages[0].text}]
    assert reply(SimpleNamespace(messages=[{"role": "user", "content": parts}])) == reply(
        SimpleNamespace(messages=as_text)
    )


def test_unknown_names_are_refused():
    with pytest.raises(ConfigError, match="no ready task set"):
        ready_task_set("poetry")
    with pytest.raises(ConfigError, match="no split"):
        ready_task_set("arithmetic").tasks(1, split="test")


@pytest.mark.parametrize(
    ("expression", "said"),
    [("12 + 30", "42"), ("12-30", "-18"), ("-5 - -7", "2"), (" 1 + 1 ", "2")],
)
def test_the_calculator_takes_one_operation(expression, said):
    calculator = Calculator()
    assert isinstance(calculator, Environment)
    assert calculator.step("calculator", json.dumps({"expression": expression})) == (said, False)


@pytest.mark.parametrize(
    "arguments",
    ['{"expression": "1 + 2 + 3"}', '{"expression": 7}', "{}", "", "no json", "[1]", '{"expression": "2 ** 9"}'],
)
def test_what_the_calculator_cannot_do_is_said_in_words(arguments):
    assert Calculator().step("calculator", arguments).content.startswith("error: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"number": "ff", "source": 16, "target": 10}, "255"),
        ({"number": "0", "source": 2, "target": 36}, "0"),
        ({"number": "12", "source": 2, "target": 10}, "error: that is no number of this base"),
        ({"number": "", "source": 2, "target": 10}, "error: that is no number of this base"),
        ({"number": "1" * 65, "source": 2, "target": 10}, "error: that is no number of this base"),
        ({"number": "1", "source": 1, "target": 10}, "error: bases go from 2 to 36"),
        ({"number": 1, "source": 2, "target": 10}, TYPES),
        ({"number": "1", "source": True, "target": 10}, TYPES),
    ],
)
def test_the_converter(arguments, said):
    assert Converter().step("convert", json.dumps(arguments)).content == said


def test_an_unknown_tool_is_an_observation():
    assert Calculator().step("convert", "{}").content == "error: there is no tool convert"
