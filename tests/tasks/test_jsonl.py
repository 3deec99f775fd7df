"""Task sets from a TOML file: JSONL with a checker, ready ones, one's own function."""

import json

import pytest

from agentworld.errors import ConfigError
from agentworld.records import Message
from agentworld.tasks import JsonlDefinition, JsonlTaskSet, Score, read_task_set, task_set_from
from agentworld.tasks.environments import Calculator

ROWS = [{"prompt": f"Capital of country {number}?", "reference": f"City {number}"} for number in range(60)]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "capitals.jsonl").write_text("\n".join(json.dumps(row) for row in ROWS) + "\n\n", encoding="utf-8")
    return tmp_path


def make(folder, **fields):
    return JsonlTaskSet(JsonlDefinition(name="capitals", file="capitals.jsonl", **fields), folder)


def write(folder, *rows):
    (folder / "capitals.jsonl").write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))


def test_a_short_file_defines_a_set(folder):
    (folder / "geography.toml").write_text('file = "capitals.jsonl"\nchecker = "contains"\n')
    task_set = read_task_set(folder / "geography.toml")
    assert task_set.name == "geography"
    task = task_set.tasks(1)[0]
    assert task_set.environment(task) is None
    assert task_set.check(task, f"it is {task.reference.lower()}, I believe") == Score(
        1.0, {"answer": f"it is {task.reference.lower()}, I believe", "reference": task.reference}
    )
    assert task_set.check(task, "no idea").value == 0.0
    assert task_set.check(task, None).value == 0.0


def test_every_line_is_in_one_split(folder):
    task_set = make(folder, heldout=0.3)
    train, held_out = task_set.tasks(), task_set.tasks(split="heldout")
    assert sorted(task.reference for task in train + held_out) == sorted(row["reference"] for row in ROWS)
    assert 5 < len(held_out) < 35
    assert make(folder, heldout=0.0).tasks(split="heldout") == []


def test_a_seed_shuffles_and_a_count_takes_the_first(folder):
    task_set = make(folder)
    assert task_set.tasks(seed=5)[:3] == task_set.tasks(3, seed=5)
    assert task_set.tasks(seed=5) != task_set.tasks()
    assert {task.task_id for task in task_set.tasks(seed=5)} == {task.task_id for task in task_set.tasks()}
    with pytest.raises(ConfigError, match="has only"):
        task_set.tasks(1000)


def test_messages_system_ids_and_tables_are_taken(folder):
    messages = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    write(folder, {"messages": messages, "reference": 2, "id": "x", "difficulty": {"level": 3}, "settings": {"a": 1}})
    (task,) = make(folder, heldout=0.0, system="Be brief.").tasks()
    assert task.task_id == "x"
    assert task.messages == (
        Message(role="system", content="Be brief."),
        Message(role="user", content="one"),
        Message(role="assistant", content="two"),
    )
    assert task.difficulty == {"level": 3}
    assert task.settings == {"a": 1}
    assert task.provenance == {"file": "capitals.jsonl", "line": 1}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ({"prompt": "x"}, "no field 'reference'"),
        ({"reference": "x"}, "no text in 'prompt'"),
        ({"prompt": 7, "reference": "x"}, "no text in 'prompt'"),
        ({"messages": [{"role": "nobody"}], "reference": "x"}, "messages: "),
        ({"prompt": "x", "reference": "x", "settings": 1}, "settings is no object"),
    ],
)
def test_a_bad_line_is_named(folder, row, message):
    write(folder, ROWS[0], row)
    with pytest.raises(ConfigError, match=message) as caught:
        make(folder).tasks()
    assert caught.value.path.endswith("capitals.jsonl:2")


def test_the_same_task_twice_is_refused(folder):
    write(folder, ROWS[0], ROWS[1], ROWS[0])
    with pytest.raises(ConfigError, match="line 1 stands again"):
        make(folder).tasks()


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"capitals\.jsonl"):
        make(tmp_path).tasks()


def own_set(size=1):
    """A task set of the user's, by function."""
    return task_set_from({"ready": "arithmetic"}) if size == 1 else object()


def with_calculator(task):
    """An environment of the user's, by function."""
    return Calculator()


def test_other_kinds_of_definitions(folder):
    assert task_set_from({"ready": "conversion", "name": "anything"}).name == "conversion"
    assert task_set_from({"python": f"{__name__}:own_set", "name": "mine", "size": 1}).name == "arithmetic"
    fields = {"name": "capitals", "file": "capitals.jsonl", "environment": f"{__name__}:with_calculator"}
    task_set = task_set_from(fields, folder=folder)
    assert isinstance(task_set.environment(task_set.tasks(1)[0]), Calculator)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "one of ready, file and python, not none"),
        ({"ready": "arithmetic", "file": "x"}, "not ready and file"),
        ({"ready": "poetry"}, "no ready task set"),
        ({"ready": "arithmetic", "colour": "red"}, "colour"),
        ({"name": "x", "file": "x", "checker": "magic"}, "no checker is called 'magic'"),
        ({"name": "x", "file": "x", "checker": "no.such.module:f"}, "cannot be imported"),
        ({"name": "x", "file": "x", "checker": "json:nothing"}, "has no 'nothing'"),
        ({"name": "x", "file": "x", "heldout": 2.0}, "share from 0 to 1"),
        ({"name": "x", "file": "x", "environment": "nowhere"}, "module:function"),
        ({"python": "json:nothing"}, "cannot be had"),
        ({"python": f"{__name__}:own_set", "sizes": 1}, "does not take these fields"),
        ({"python": f"{__name__}:own_set", "size": 2}, "made something without name"),
    ],
)
def test_what_a_definition_lacks_is_said(fields, message):
    with pytest.raises(ConfigError, match=message):
        task_set_from(fields, "my.toml")


def test_without_a_name_a_set_has_its_file_s(folder):
    assert task_set_from({"file": "capitals.jsonl"}, "task_sets[0]", folder).name == "capitals"
    assert task_set_from({"file": "capitals.jsonl", "name": "cities"}, "task_sets[0]", folder).name == "cities"


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_an_empty_file_is_named_with_what_belongs_into_it(folder, text):
    (folder / "capitals.jsonl").write_text(text)
    with pytest.raises(ConfigError, match=r"capitals\.jsonl is empty .*Write a task a line: .*prompt"):
        make(folder).tasks()


@pytest.mark.parametrize("line", ["What is this?", "[1]"])
def test_a_line_that_is_no_object_says_what_is_expected(folder, line):
    write(folder, ROWS[0], line)
    with pytest.raises(ConfigError, match=r"\(at .*capitals\.jsonl:2\)\. Each line is one object: .*reference"):
        make(folder).tasks()
