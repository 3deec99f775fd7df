"""What a command is given: arguments, variables, standard input, a place to work."""

import asyncio
import json
import os
import sys
import tempfile
from types import SimpleNamespace

import pytest

from agentworld.agents.command import play_command, task_for
from agentworld.agents.definition import CommandAgent
from agentworld.agents.ports import AgentFailure, Play
from agentworld.records import Message
from tests.held_time_outs import HeldTimeOuts

TELL = (
    "import json, os, sys\n"
    "print(json.dumps({'arguments': sys.argv[1:], 'stdin': sys.stdin.read(), 'cwd': os.getcwd(),\n"
    "    'here': os.listdir('.'), 'env': dict(os.environ),\n"
    "    'task': json.load(open(sys.argv[1])) if sys.argv[1:] and os.path.exists(sys.argv[1]) else None}))\n"
)
MESSAGES = (Message(role="system", content="Be brief."), Message(role="user", content="What is {it}? \"'$(id)"))
STARTED = SimpleNamespace(trajectory_id="trj_1", base_url="http://here/t/trj_1/v1", api_key="k")


async def told(*arguments, started=STARTED, messages=MESSAGES, **fields):
    fields = {"answer": "stdout", "timeout": 120.0, **fields}
    agent = CommandAgent(command=("{python}", "-c", TELL, *arguments), **fields)
    play = Play()
    task = task_for(agent, messages, [], "http://env/token", "m", {"temperature": 0.5})
    await play_command(agent, started, task, play)
    return json.loads(play.answer)


async def test_placeholders_are_replaced_and_other_braces_stay():
    said = await told(
        "{prompt}", "--url={base_url}", "{model}/{api_key}/{trajectory_id}", '{"a": {b}}', "{environment_url}"
    )
    assert said["arguments"] == [
        MESSAGES[1].content,
        "--url=http://here/t/trj_1/v1",
        "m/k/trj_1",
        '{"a": {b}}',
        "http://env/token",
    ]


async def test_the_task_comes_in_three_ways():
    said = await told("{task_file}")
    task = json.loads(said["stdin"])
    assert task == said["task"] == json.loads(said["env"]["AGENTWORLD_TASK"])
    assert task["prompt"] == MESSAGES[1].content
    assert [message["role"] for message in task["messages"]] == ["system", "user"]
    assert (task["environment_url"], task["sampling"]) == ("http://env/token", {"temperature": 0.5})


async def test_a_long_task_is_in_no_variable():
    said = await told("{task_file}", messages=(Message(role="user", content="x" * 51_000),))
    assert "AGENTWORLD_TASK" not in said["env"]
    assert len(said["task"]["prompt"]) == 51_000


@pytest.mark.parametrize(("stdin", "expected"), [("prompt", MESSAGES[1].content), ("none", "")])
async def test_other_standard_inputs(stdin, expected):
    assert (await told(stdin=stdin))["stdin"] == expected


async def test_variables_of_the_agent_do_not_hide_the_gateway(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "https://elsewhere")
    said = await told(env={"MINE": "1", "OPENAI_API_KEY": "real"})
    names = ("MINE", "OPENAI_BASE_URL", "OPENAI_API_KEY", "AGENTWORLD_ENVIRONMENT_URL", "AGENTWORLD_TRAJECTORY_ID")
    assert [said["env"][name] for name in names] == ["1", STARTED.base_url, "k", "http://env/token", "trj_1"]


async def test_each_run_has_an_empty_place_of_its_own(tmp_path):
    first, second = await told(), await told()
    assert first["cwd"] != second["cwd"]
    assert first["here"] == second["here"] == []
    assert os.path.basename(os.path.dirname(first["cwd"])) not in os.listdir(tempfile.gettempdir())
    (tmp_path / "mine").touch()
    said = await told(cwd=str(tmp_path))
    assert (said["cwd"], said["here"]) == (str(tmp_path), ["mine"])
    assert (tmp_path / "mine").exists()


async def test_a_server_without_a_gateway():
    with pytest.raises(AgentFailure, match="has no gateway"):
        await told(started=SimpleNamespace(trajectory_id="t", base_url=None, api_key=None))


async def test_the_time_is_up(monkeypatch, tmp_path):
    limits, told = HeldTimeOuts(7.25, monkeypatch), tmp_path / "told"
    script = "import sys, time; print('so far', flush=True); open(sys.argv[1], 'x').close(); time.sleep(600)"
    agent = CommandAgent(command=(sys.executable, "-c", script, str(told)), timeout=7.25, answer="stdout")
    play = Play()
    playing = asyncio.create_task(play_command(agent, STARTED, task_for(agent, MESSAGES, [], None, "m", {}), play))
    async with asyncio.timeout(120):
        while not told.exists():  # noqa: ASYNC110 - another process's work
            await asyncio.sleep(0.01)
    limits.run_out()
    await playing
    assert (play.stopped, play.answer) == ("timeout", "so far")
