"""Task sets from packages: the same call, the same tasks; splits; checkers that know right from wrong."""

import importlib.util
import json

import msgspec
import pytest

from agentworld.agents.attempt import JudgingEnvironment
from agentworld.errors import ConfigError
from agentworld.tasks import Task, TaskSet, ready_task_set, task_set_from
from agentworld.tasks.bfcl_calls import Call, as_tool, calls_of_text, judge

FUNCTION = {
    "name": "shop.buy",
    "description": "Buys.",
    "parameters": {
        "type": "dict",
        "required": ["what", "count"],
        "properties": {
            "what": {"type": "string"},
            "count": {"type": "integer"},
            "price": {"type": "float"},
            "tags": {"type": "array", "items": {"type": "any"}},
            "type": {"type": "dict", "properties": {"optional": {"type": "tuple"}}},
        },
    },
}
POSSIBLE = {
    "shop.buy": {"what": ["red shoes"], "count": [2], "price": [3.0, ""], "tags": [["a", 1], ""],
                 "type": [{"optional": [[1, 2]], "more": ["x", ""]}, ""]}
}  # fmt: skip


def same_again(make, count=8):
    """Tasks of a set, after the promises that all sets make."""
    task_set: TaskSet = make()
    tasks = task_set.tasks(count, seed=3)
    assert tasks == make().tasks(count, seed=3)
    assert len({task.task_id for task in tasks}) == count
    held_out = {task.task_id for seed in range(2) for task in task_set.tasks(2, split="heldout", seed=seed)}
    assert not held_out & {task.task_id for seed in range(2) for task in task_set.tasks(count, seed=seed)}
    for task in tasks:
        assert task.provenance["package"]
        # What the pool keeps of a task is enough to judge it.
        assert msgspec.convert(json.loads(json.dumps(task.payload())), Task) == task
    with pytest.raises(ConfigError, match="no split"):
        task_set.tasks(1, split="test")
    return task_set, tasks


@pytest.mark.parametrize("generator", ["chain_sum", "mini_sudoku", "countdown"])
def test_a_generator_of_reasoning_gym(generator):
    task_set, tasks = same_again(lambda: ready_task_set(f"reasoning-gym:{generator}"))
    assert tasks != task_set.tasks(8, seed=4)
    for task in tasks:
        right = f"So it is <answer>{task.reference}</answer>"
        assert task_set.check(msgspec.convert(task.payload(), Task), right).value == 1.0
        assert [task_set.check(task, said).value for said in (None, task.reference, "<answer>7 7</answer>")] == [0] * 3


def test_options_of_a_generator_are_its_own():
    made = task_set_from({"ready": "reasoning-gym:chain_sum", "options": {"min_terms": 5, "max_terms": 5}})
    assert {task.messages[0].text.count(" + ") + task.messages[0].text.count(" - ") for task in made.tasks(5)} == {4}
    for options, says in [({"terms": 5}, "refuses these options"), ({"min_terms": 9, "max_terms": 2}, "refuses")]:
        with pytest.raises(ConfigError, match=says):
            ready_task_set("reasoning-gym:chain_sum", options)
    with pytest.raises(ConfigError, match="no generator 'sums'"):
        ready_task_set("reasoning-gym:sums")
    with pytest.raises(ConfigError, match=r"reasoning-gym:NAME, bfcl:NAME, textworld:NAME"):
        ready_task_set("chess")
    with pytest.raises(ConfigError, match="has no options"):
        ready_task_set("arithmetic", {"digits": 3})


@pytest.fixture
def data(tmp_path):
    """A folder as bfcl-eval has it."""
    (tmp_path / "possible_answer").mkdir()
    for category, answers in (("simple_python", True), ("irrelevance", False)):
        questions, truths = [], []
        for number in range(40):
            asked = [[{"role": "user", "content": f"Buy {number} pairs of red shoes."}]]
            questions.append({"id": f"{category}_{number}", "question": asked, "function": [FUNCTION]})
            truths.append({"id": f"{category}_{number}", "ground_truth": [POSSIBLE]})
        (tmp_path / f"BFCL_v4_{category}.json").write_text("\n".join(map(json.dumps, questions)))
        if answers:
            lines = "\n".join(map(json.dumps, truths))
            (tmp_path / "possible_answer" / f"BFCL_v4_{category}.json").write_text(lines)
    return str(tmp_path)


def test_bfcl_judges_the_calls_that_were_made(data):
    task_set, tasks = same_again(lambda: ready_task_set("bfcl:simple_python", {"data": data}))
    environment = task_set.environment(tasks[0])
    assert isinstance(environment, JudgingEnvironment)
    (tool,) = environment.tools
    assert (tool["function"]["name"], environment.check("I bought them.").value) == ("shop_buy", 0.0)
    properties = tool["function"]["parameters"]["properties"]
    assert (properties["price"], properties["tags"]) == ({"type": "number"}, {"type": "array", "items": {}})
    assert properties["type"]["properties"] == {"optional": {"type": "array"}}
    assert environment.step("shop_buy", '{"what": "Red-Shoes", "count": 2}').content == "recorded"
    assert environment.check(None).value == 1.0
    assert environment.step("steal", "{}").content == "error: there is no tool steal"
    assert environment.check(None).value == 0.0
    environment.reset()
    assert environment.step("shop_buy", "[1]").content.startswith("error")
    assert "no JSON object" in environment.check(None).details["wrong"]
    assert task_set.check(tasks[0], '{"name": "shop.buy", "arguments": {"what": "red shoes", "count": 2}}').value == 1.0
    nothing = ready_task_set("bfcl:irrelevance", {"data": data})
    silent = nothing.environment(nothing.tasks(1)[0])
    assert silent.check("There is no such shop.").value == 1.0
    silent.step("shop_buy", "{}")
    assert silent.check(None).value == 0.0
    for name, options, says in [
        ("bfcl:multi_turn_base", {}, "no tasks of bfcl's category"),
        ("bfcl:multiple", {"data": data}, "cannot be read"),
        ("bfcl:multiple", {"folder": data}, "no option 'folder'"),
        ("bfcl:multiple", {"data": 3}, "no str"),
    ]:
        with pytest.raises(ConfigError, match=says):
            ready_task_set(name, options).tasks()


@pytest.mark.parametrize(
    ("arguments", "right"),
    [
        ({"what": "red shoes", "count": 2, "price": 3}, True),
        ({"what": "red shoes", "count": 2, "tags": ["A", 1.0]}, True),
        ({"what": "red shoes", "count": 2, "type": {"optional": [1, 2]}}, True),
        ({"what": "red shoes", "count": 2, "type": {"optional": [2, 1]}}, False),
        ({"what": "red shoes", "count": 2, "type": {}}, False),
        ({"what": "red shoes", "count": True}, False),
        ({"what": "red shoes", "count": "2"}, False),
        ({"what": "red shoes"}, False),
        ({"what": "red shoes", "count": 2, "colour": "red"}, False),
    ],
)
def test_values_of_calls(arguments, right):
    assert judge([Call("shop_buy", arguments)], {"calls": [POSSIBLE]}, [as_tool(FUNCTION)]).value == float(right)


def test_several_calls_may_come_in_any_order():
    possible = [{"shop.buy": {"what": [what], "count": [1]}} for what in ("hat", "coat")]
    calls = [Call("shop_buy", {"what": what, "count": 1}) for what in ("coat", "hat")]
    tools = [as_tool(FUNCTION)]
    assert judge(calls, {"calls": possible}, tools).value == 1.0
    assert judge([calls[0], calls[0]], {"calls": possible}, tools).value == 0.0
    assert judge(calls[:1], {"calls": possible}, tools).details["wrong"] == "1 calls, not 2"
    assert calls_of_text("no calls") == calls_of_text(None) == []


@pytest.mark.skipif(importlib.util.find_spec("textworld") is None, reason="textworld is not installed")
def test_a_text_game_is_won_by_its_way_alone():
    task_set, tasks = same_again(lambda: ready_task_set("textworld:quest", {"quest_length": 2}), count=3)
    task = tasks[0]
    environment = task_set.environment(task)
    assert isinstance(environment, JudgingEnvironment)
    assert "You cannot 'fly away' now." in environment.step("act", '{"command": "fly away"}').content
    assert environment.step("act", '{"command": 3}').content.startswith("error")
    assert environment.check(None).value == 0.0
    seen = [environment.step("act", json.dumps({"command": command})) for command in task.reference]
    assert [each.done for each in seen] == [False, True]
    assert environment.check(None).value == 1.0
    assert task_set.check(task, "\n".join(task.reference)).value == 1.0
    assert task_set.check(task, "look").value == 0.0
    with pytest.raises(ConfigError, match="from 1 to 100"):
        ready_task_set("textworld:quest", {"rooms": 0})


def test_a_package_that_is_not_there_is_named(monkeypatch):
    if importlib.util.find_spec("textworld") is None:
        with pytest.raises(ConfigError, match=r"agentworld\[textworld\]"):
            ready_task_set("textworld:quest").tasks(1)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="--no-deps bfcl-eval"):
        ready_task_set("bfcl:multiple").tasks(1)
