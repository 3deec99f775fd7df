"""The programs of the guide to clients, run as they stand there."""

import json
import re
import shlex

import pytest

from tests.clients import installed
from tests.clients.conftest import needs
from tests.clients.replies import call, turn
from tests.clients.stage import GUARD, called, chain, results, roles, tool_names
from tests.docs.pages import DOCS

pytestmark = [pytest.mark.clients, needs("python"), pytest.mark.timeout(300)]
GUIDE = DOCS / "guides" / "clients.md"


def program(client):
    """The program in a client's section."""
    found = re.search(
        rf"^## {re.escape(client)}\n.*?^```python\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL
    )
    return found[1]


PROGRAMS = ["openai", "anthropic", "OpenAI Agents SDK", "LangGraph", "pydantic-ai"]
DROP_THINKING = ["LangGraph"]


@pytest.mark.parametrize("client", PROGRAMS)
def test_a_program_of_the_guide(stage, client):
    (stage.work / "notes.txt").write_text("für\n数\n")
    stage.engine.script = [
        turn("I look.", call("run", command="wc -l < notes.txt"), call("run", command="cat notes.txt"), think="Count."),
        turn(call("run", command="echo {a,b"), think="Again."),
        turn("It has 2 lines."),
    ]
    run, trajectory = stage.exec_python(program(client))
    assert run.output.strip() == "It has 2 lines."
    steps = stage.steps(trajectory)
    if stage.tokens == "engine" and client in DROP_THINKING:
        # The engine renders the history that it is given, without the thinking that it sampled.
        assert [step.fork_reason for step in steps] == [None, "template", "template"]
    else:
        chain(steps)
    assert [[name for name, _ in called(step)] for step in steps] == [["run", "run"], ["run"], []]
    assert all(tool_names(step) == ["run"] for step in steps)
    assert json.loads(called(steps[0])[1][1]) == {"command": "cat notes.txt"}
    assert [text.strip() for text in results(steps[2])] == ["2", "für\n数", "{a,b"]
    opening = ["system", "user"] if "Be brief" in program(client) else ["user"]
    assert roles(steps[2]) == [*opening, "assistant", "tool", "tool", "assistant", "tool"]
    assert [step.response_message.reasoning for step in steps] == ["Count.", "Again.", None]


def test_smolagents(stage):
    (stage.work / "notes.txt").write_text("für\n数\n")
    stage.engine.script = [
        turn("I look.", call("run", command="wc -l < notes.txt"), think="Count."),
        turn(call("run", command="echo {a,b")),
        turn(call("final_answer", answer="It has 2 lines.")),
    ]
    run, trajectory = stage.exec_python(program("smolagents"))
    assert run.output.strip().endswith("It has 2 lines.")
    steps = stage.steps(trajectory, source="engine")  # It demands a tool call each time.
    assert [[name for name, _ in called(step)] for step in steps] == [["run"], ["run"], ["final_answer"]]
    assert all(tool_names(step) == ["run", "final_answer"] for step in steps)
    # It gives calls back as text, so each prompt is written anew; all the same it is one trajectory.
    assert [step.fork_reason for step in steps] == [None, "history_rewritten", "history_rewritten"]
    assert roles(steps[2]) == ["system", "user", "assistant", "user", "assistant", "user"]


def test_mini_swe_agent(stage):
    (stage.work / "notes.txt").write_text("für\n数\n")
    stage.engine.script = [
        turn("I look.", call("bash", command="wc -l < notes.txt"), think="Count."),
        turn("Both.", call("bash", command="cat notes.txt"), call("bash", command="echo {a,b")),
        turn("Done.", call("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")),
    ]
    found = re.search(r"^    agentworld exec -- (env MSWEA.+)$", GUIDE.read_text(), re.MULTILINE)
    command = shlex.split(found[1])
    _, trajectory = stage.exec(*guarded(command))
    steps = stage.steps(trajectory)
    chain(steps)
    assert [[name for name, _ in called(step)] for step in steps] == [["bash"], ["bash", "bash"], ["bash"]]
    assert roles(steps[2]) == ["system", "user", "assistant", "tool", "assistant", "tool", "tool"]
    assert json.loads(results(steps[2])[1])["output"] == "für\n数\n"


def guarded(command):
    """The command with the clients' own programs, and their network guarded."""
    return ["env", f"PYTHONPATH={GUARD}", f"PATH={installed.python().parent}:/usr/bin:/bin", *command]
