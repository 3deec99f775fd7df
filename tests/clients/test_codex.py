"""Codex CLI, as its guide runs it."""

import json
import re
import shlex
import textwrap

import pytest

from tests.clients.conftest import needs
from tests.clients.replies import call, turn
from tests.clients.stage import called, chain, results, roles, tool_names
from tests.docs.pages import DOCS

pytestmark = [needs("npm"), pytest.mark.timeout(300)]
GUIDE = DOCS / "guides" / "codex.md"
# As long as what it becomes it may not be: Python takes a compiled file by its source's size and second.
BROKEN = "def double(x):\n    return x + 10\n"
PATCH = """*** Begin Patch
*** Update File: double.py
@@
 def double(x):
-    return x + 10
+    return x * 2
*** End Patch
"""


def set_up(stage):
    """The guide's configuration in the home, and something to repair."""
    found = re.search(r"^    # ~/\.codex/config\.toml\n(?:    .*\n|\n)+", GUIDE.read_text(), re.MULTILINE)
    (stage.home / ".codex").mkdir()
    text = textwrap.dedent(found[0]).replace("http://127.0.0.1:8400", stage.url)
    (stage.home / ".codex" / "config.toml").write_text(text)
    (stage.work / "double.py").write_text(BROKEN)
    (stage.work / "check.py").write_text(
        "from double import double\nassert double(4) == 8, double(4)\nprint('passed')\n"
    )


def command():
    """The agent's command line in the guide."""
    found = re.search(r"^    agentworld exec -- (sh -c 'codex .+)$", GUIDE.read_text(), re.MULTILINE)
    return shlex.split(found[1])


REPAIR = [
    turn("I run the check.", call("exec_command", cmd="python3 check.py"), think="Look first."),
    turn("It adds.", call("exec_command", cmd=f"apply_patch <<'EOF'\n{PATCH}EOF"), think="Twice."),
    turn(call("exec_command", cmd="python3 check.py && echo für 数")),
    "The check passes now.",
]


def check_repair(stage, run, trajectory):
    assert "The check passes now." in run.output
    assert "x * 2" in (stage.work / "double.py").read_text()
    steps = stage.steps(trajectory)
    chain(steps)
    assert [name for step in steps for name, _ in called(step)] == ["exec_command"] * 3
    assert "exec_command" in tool_names(steps[0])
    assert all(step.tools == steps[0].tools for step in steps)
    assert json.loads(called(steps[0])[0][1]) == {"cmd": "python3 check.py"}
    assert "AssertionError" in results(steps[1])[0]
    assert "passed\nfür 数" in results(steps[3])[-1]
    assert [role for role in roles(steps[3]) if role in ("assistant", "tool")] == ["assistant", "tool"] * 3
    assert [step.response_message.reasoning for step in steps] == ["Look first.", "Twice.", None, None]
    assert {step.dialect for step in steps} == {"responses"}
    return steps


@pytest.mark.parametrize("stage", ["token-in"], indirect=True)
def test_codex_repairs_a_file(stage):
    set_up(stage)
    stage.engine.script = REPAIR
    check_repair(stage, *stage.exec(*command()))


@pytest.mark.clients
@pytest.mark.parametrize("stage", ["engine"], indirect=True)
def test_codex_on_an_engine_that_renders(stage):
    set_up(stage)
    stage.engine.script = REPAIR
    check_repair(stage, *stage.exec(*command()))


@pytest.mark.clients
@pytest.mark.parametrize("stage", ["token-in"], indirect=True)
def test_a_session_of_codex_without_exec_is_a_trajectory(stage):
    set_up(stage)
    stage.engine.script = REPAIR
    run = stage.run("codex", "exec", "--skip-git-repo-check", "Fix the failing check", OPENAI_API_KEY="none")
    assert run.code == 0, run.errors
    (trajectory,) = stage.new_trajectories()
    assert trajectory.trajectory_id.startswith("codex-")
    check_repair(stage, run, trajectory)


@pytest.mark.clients
@pytest.mark.parametrize("stage", ["token-in"], indirect=True)
def test_a_sub_agent_of_codex_is_a_branch(stage):
    def script(request):
        text = request.prompt_text
        turns = text.count("<tool_response>")
        if "Fix the failing check" not in text:
            return turn(call("exec_command", cmd="ls"), think="Sub.") if turns == 0 else "Two files."
        if turns == 0:
            return turn("Delegating.", call("multi_agent_v1__spawn_agent", message="Count the files."), think="Main.")
        if turns == 1:
            name = re.search(r'"agent_id": ?"([^"]+)"', text.rsplit("<tool_response>", 1)[1])[1]
            return turn(call("multi_agent_v1__wait_agent", targets=[name], timeout_ms=60000))
        return "It says two."

    set_up(stage)
    stage.engine.script = script
    run, trajectory = stage.exec(*command())
    assert "It says two." in run.output
    steps = stage.steps(trajectory)
    main = [step for step in steps if "Fix the failing check" in "".join(m.text for m in step.prompt_messages)]
    chain(main)
    first, second = (step for step in steps if step not in main)
    assert [name for step in main for name, _ in called(step)] == [
        "multi_agent_v1__spawn_agent",
        "multi_agent_v1__wait_agent",
    ]
    assert "Two files." in results(main[2])[-1]
    assert first.agent not in (None, main[0].agent)
    assert (first.parent_step_id, first.fork_reason) == (None, "subagent")
    assert (second.agent, second.parent_step_id, second.fork_reason) == (first.agent, first.step_id, None)
