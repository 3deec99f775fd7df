"""Run configurations: what they say, and what is said about bad ones."""

import re

import pytest

from agentworld.agents.definition import CommandAgent, LoopAgent
from agentworld.agents.run_config import agents_of, read_run, work_of
from agentworld.errors import AgentWorldError

GOOD = """
model = "policy"
rollouts = 2
[sampling]
temperature = 0.5
[[agents]]
path = "agents/mine.toml"
max_turns = 3
[[agents]]
kind = "loop"
[[task_sets]]
path = "tasks/words.toml"
count = 2
seed = 4
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents/mine.toml").write_text('kind = "command"\ncommand = ["mine"]\nmax_turns = 9\n')
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/words.toml").write_text('file = "words.jsonl"\nheldout = 0.0\n')
    lines = [f'{{"prompt": "say {word}", "reference": "{word}"}}\n' for word in ("one", "two", "three")]
    (tmp_path / "tasks/words.jsonl").write_text("".join(lines))
    return tmp_path


def read(folder, text):
    path = folder / "run.toml"
    path.write_text(text)
    return read_run(path)


def test_paths_start_at_the_file_and_tables_go_over_them(folder):
    config = read(folder, GOOD)
    assert agents_of(config, folder) == [CommandAgent(command=("mine",), name="mine", max_turns=3), LoopAgent()]
    ((task_set, tasks),) = work_of(config, folder)
    assert (task_set.name, len(tasks)) == ("words", 2)
    assert config.sampling.temperature == 0.5


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("rollouts = 2", "rollouts = two", "not valid TOML.*line 3"),
        ("rollouts = 2", "rollouts = 0", "rollouts must be at least 1"),
        ("rollouts = 2", "rollout = 2", "unknown field `rollout`"),
        ("rollouts = 2", 'rollouts = "many"', r"rollouts"),
        ('model = "policy"', "", "missing required field `model`"),
        ("agents/mine.toml", "agents/none.toml", "none.toml does not exist"),
        ("max_turns = 3", "turns = 3", "unknown field `turns`"),
        ("temperature", "temprature", "temprature"),
        ("tasks/words.toml", "tasks/none.toml", "none.toml does not exist"),
        ("count = 2", "count = 20", "has only 3 tasks"),
        ("count = 2", "count = 0", "count must be at least 1"),
        ("count = 2", 'split = "heldout"', "no tasks of split heldout"),
        ("count = 2", 'split = "test"', "no split 'test'"),
        ("count = 2", "many = 2", "unknown field `many`"),
        ('path = "tasks/words.toml"', "path = 3", "path is 3"),
        ('path = "tasks/words.toml"', 'ready = "chess"', "no ready task set is called 'chess'"),
    ],
)
def test_what_is_wrong_is_named(folder, old, new, says):
    assert old in GOOD
    with pytest.raises(AgentWorldError) as caught:
        config = read(folder, GOOD.replace(old, new, 1))
        agents_of(config, folder)
        work_of(config, folder)
    assert re.search(says, caught.value.one_line(), re.DOTALL)


@pytest.mark.parametrize(
    ("old", "new", "begins"),
    [
        ("count = 2", "count = 0", "task_sets[0]: count must"),
        ("count = 2", "count = 20", "task_sets[0]: "),
        ("count = 2", 'count = "many"', "task_sets[0]: "),
        ("count = 2", 'split = "test"', "task_sets[0]: there is no split"),
        ("count = 2", 'split = "heldout"', "task_sets[0]: there are no tasks"),
        ("count = 2", 'checker = "none"', "{folder}/tasks/words.toml: no checker is called"),
        ("count = 2", "heldout = 2.0", "{folder}/tasks/words.toml: heldout is a share"),
        ("count = 2", 'file = "gone.jsonl"', "{folder}/tasks/words.toml: {folder}/tasks/gone.jsonl cannot be read"),
    ],
)
def test_the_place_that_is_wrong_comes_first(folder, old, new, begins):
    config = read(folder, GOOD.replace(old, new, 1))
    with pytest.raises(AgentWorldError) as caught:
        work_of(config, folder)
    assert caught.value.one_line().startswith(begins.format(folder=folder))


def test_a_split_of_the_set_s_own_file_is_blamed_on_that(folder):
    (folder / "tasks/words.toml").write_text('file = "words.jsonl"\nheldout = 0.0\nsplit = "test"\n')
    with pytest.raises(AgentWorldError, match=r"words\.toml: there is no split"):
        work_of(read(folder, GOOD), folder)


@pytest.mark.parametrize("missing", ["agents", "task_sets"])
def test_a_run_needs_agents_and_task_sets(folder, missing):
    with pytest.raises(AgentWorldError, match=f"there are no {missing}"):
        read(folder, 'model = "m"\nagents = [{}]\ntask_sets = [{}]\n'.replace(f"{missing} = [{{}}]", f"{missing} = []"))


def test_a_set_of_the_run_s_own_file_needs_no_name(folder):
    config = read(folder, GOOD.replace('path = "tasks/words.toml"', 'file = "tasks/words.jsonl"\nheldout = 0.0'))
    ((task_set, tasks),) = work_of(config, folder)
    assert (task_set.name, tasks[0].task_set) == ("words", "words")


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ('file = "words.jsonl"', "is a task set, not", "[[task_sets]]"),
        ('kind = "loop"', "is an agent, not", "[[agents]]"),
        (
            'pool = "x"\nmodel = "m"\n[settings]\nmethod = "sft"',
            "is the configuration of a training",
            "agentworld train",
        ),
        ('[[models]]\nname = "m"', "is the configuration of a server", "agentworld serve --config"),
    ],
)
def test_another_kind_of_file_is_recognized(folder, text, says, hint):
    with pytest.raises(AgentWorldError) as caught:
        read(folder, text)
    assert says in caught.value.message
    assert hint in caught.value.hint
