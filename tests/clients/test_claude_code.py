"""Claude Code, as its guide runs it."""

import json
import re
import shlex
import tomllib

import pytest

from tests.clients.conftest import needs
from tests.clients.replies import call, turn
from tests.clients.stage import called, chain, extends, results, roles, tool_names
from tests.docs.pages import DOCS

pytestmark = [needs("npm"), pytest.mark.timeout(300)]
GUIDE = DOCS / "guides" / "claude-code.md"
# As long as what it becomes it may not be: Python takes a compiled file by its source's size and second.
BROKEN = "def double(x):\n    return x + 10\n"
CHECK = "from double import double\nassert double(4) == 8, double(4)\nprint('passed')\n"


def command():
    """The agent's command line in the guide."""
    found = re.search(r"^    agentworld exec -- (claude .+)$", GUIDE.read_text(), re.MULTILINE)
    return shlex.split(found[1])


def repair(work):
    """Replies that look, edit and look again."""
    return [
        turn("I run the test.", call("Bash", command="python3 check.py", description="Run it"), think="Look first."),
        turn(call("Read", file_path=str(work / "double.py"))),
        turn(
            "It adds.",
            call("Edit", file_path=str(work / "double.py"), old_string="x + 10", new_string="x * 2"),
            think="Twice.",
        ),
        turn(call("Bash", command="python3 check.py && echo für 数", description="Run it again")),
        "The test passes now.",
    ]


def set_up(work):
    (work / "double.py").write_text(BROKEN)
    (work / "check.py").write_text(CHECK)


def check_repair(stage, run, trajectory):
    assert "The test passes now." in run.output
    assert "x * 2" in (stage.work / "double.py").read_text()
    steps = stage.steps(trajectory)
    chain(steps)
    assert [name for step in steps for name, _ in called(step)] == ["Bash", "Read", "Edit", "Bash"]
    assert {"Bash", "Read", "Edit"} <= set(tool_names(steps[0]))
    assert all(step.tools == steps[0].tools for step in steps)
    assert json.loads(called(steps[0])[0][1])["command"] == "python3 check.py"
    assert "AssertionError" in results(steps[1])[0]
    assert results(steps[4])[-1].startswith("passed\nfür 数")
    assert [role for role in roles(steps[4]) if role in ("assistant", "tool")] == ["assistant", "tool"] * 4
    assert [step.response_message.reasoning for step in steps] == ["Look first.", None, "Twice.", None, None]
    assert not any("x-anthropic-billing-header" in str(message.content) for message in steps[4].prompt_messages)
    return steps


@pytest.mark.parametrize("stage", ["token-in"], indirect=True)
def test_claude_code_repairs_a_file(stage):
    set_up(stage.work)
    stage.engine.script = repair(stage.work)
    check_repair(stage, *stage.exec(*command()))


@pytest.mark.clients
@pytest.mark.parametrize("stage", ["engine"], indirect=True)
def test_claude_code_on_an_engine_that_renders(stage):
    set_up(stage.work)
    stage.engine.script = repair(stage.work)
    check_repair(stage, *stage.exec(*command()))


@pytest.mark.clients
@pytest.mark.parametrize("stage", ["token-in"], indirect=True)
def test_sub_agents_of_claude_code_are_branches(stage):
    """Two at once, each with a tool; then the main agent goes on with both reports."""

    def script(request):
        text = request.prompt_text
        turns = text.count("<tool_response>")
        if "Fix the failing test" not in text:
            number = "one" if "Count files in one" in text else "two"
            if turns == 0:
                return turn(call("Bash", command=f"ls {number} | wc -l", description="Count"), think="Sub.")
            return f"Folder {number} has a file."
        if turns == 0:
            tasks = [
                call("Agent", description="count", prompt=f"Count files in {number}", subagent_type="general-purpose",
                     run_in_background=False)
                for number in ("one", "two")
            ]  # fmt: skip
            return turn("Delegating.", *tasks, think="Main.")
        return "Each has one."

    for number in ("one", "two"):
        (stage.work / number).mkdir()
        (stage.work / number / "a.txt").write_text("a")
    stage.engine.script = script
    run, trajectory = stage.exec(*command()[:-3], "Bash", "Agent")
    assert "Each has one." in run.output
    steps = stage.steps(trajectory)
    main = [step for step in steps if step.agent == "claude"]
    chain(main)
    assert [name for name, _ in called(main[0])] == ["Agent", "Agent"]
    assert ["one has a file" in text or "two has a file" in text for text in results(main[1])] == [True, True]
    others = {step.agent for step in steps} - {"claude"}
    assert len(others) == 2
    for agent in others:
        first, second = (step for step in steps if step.agent == agent)
        assert (first.parent_step_id, first.fork_reason) == (None, "subagent")
        assert (second.parent_step_id, second.fork_reason) == (first.step_id, None)
        extends(first, second)
    assert len(steps) == 6


@pytest.mark.clients
@pytest.mark.parametrize("stage", ["token-in"], indirect=True)
def test_a_session_of_claude_code_without_exec_is_a_trajectory(stage):
    set_up(stage.work)
    stage.engine.script = repair(stage.work)
    switches = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "ANTHROPIC_API_KEY": "none"}
    run = stage.run(*command(), ANTHROPIC_BASE_URL=stage.url, **switches)
    assert run.code == 0, run.errors
    (trajectory,) = stage.new_trajectories()
    assert trajectory.trajectory_id.startswith("claude-code-")
    assert trajectory.status == "open"
    check_repair(stage, run, trajectory)


@pytest.mark.clients
@pytest.mark.parametrize("stage", ["token-in"], indirect=True)
def test_the_example_for_runs_works_for_any_user(stage):
    """Root too, as which containers often run."""
    set_up(stage.work)
    stage.engine.script = repair(stage.work)
    agent = tomllib.loads((DOCS.parent / "examples" / "agents" / "claude-code.toml").read_text())
    filled = [part.replace("{prompt}", "Fix the failing test") for part in agent["command"]]
    check_repair(stage, *stage.exec(*filled))
