"""Claude Code, as its guide runs it."""

import json
import re
import shlex

import pytest

from tests.clients.conftest import needs
from tests.clients.replies import call, turn
from tests.clients.stage import called, chain, results, roles, tool_names
from tests.docs.pages import DOCS

pytestmark = [needs("npm"), pytest.mark.timeout(300)]
GUIDE = DOCS / "guides" / "claude-code.md"
BROKEN = "def double(x):\n    return x + 1\n"
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
            call("Edit", file_path=str(work / "double.py"), old_string="x + 1", new_string="x * 2"),
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
