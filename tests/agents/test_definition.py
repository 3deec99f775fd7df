"""Agents as TOML files."""

import re

import pytest

from agentworld.agents.definition import CommandAgent, LoopAgent, agent_from, read_agent
from agentworld.errors import ConfigError, InvalidRequestError


def test_a_file_names_its_agent(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('kind = "command"\ncommand = ["my-agent", "--ask", "{prompt}"]\nstdin = "none"\n')
    agent = read_agent(path)
    assert agent == CommandAgent(command=("my-agent", "--ask", "{prompt}"), stdin="none", name="mine")
    assert agent.limit == 4


def test_loop_with_sampling():
    agent = agent_from({"kind": "loop", "max_turns": 3, "sampling": {"temperature": 0.5}}, "here")
    assert isinstance(agent, LoopAgent)
    assert (agent.max_turns, agent.sampling.temperature) == (3, 0.5)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({}, 'Use kind = "loop" or kind = "command"'),
        ({"kind": "shell"}, 'Use kind = "loop" or kind = "command"'),
        ({"kind": "loop", "max_turn": 3}, "max_turn"),
        ({"kind": "loop", "max_turns": "three"}, r"\$\.max_turns"),
        ({"kind": "loop", "timeout": 0}, "timeout must be over 0"),
        ({"kind": "command"}, "command"),
        ({"kind": "command", "command": []}, "command is empty"),
        ({"kind": "command", "command": ["a"], "name": "a b"}, "cannot be an id"),
        ({"kind": "command", "command": ["a"], "stdin": "file"}, "stdin"),
    ],
)
def test_what_is_wrong_is_named(data, says):
    with pytest.raises(InvalidRequestError) as caught:
        agent_from(data, "agent.toml")
    assert re.search(says, caught.value.one_line())


def test_missing_file(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        read_agent(tmp_path / "none.toml")
