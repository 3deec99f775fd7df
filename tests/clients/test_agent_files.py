"""Each agent of examples/agents, run once by `agentworld run` on a task with a tool, against the scripted engine."""

import json
import os
import sys

import pytest

from tests.clients import installed
from tests.clients.conftest import needs
from tests.clients.replies import call, turn
from tests.docs.pages import ROOT

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]
AGENTS = ROOT / "examples" / "agents"
CALLS = {
    "claude-code": call("Bash", command="echo 42", description="Add"),
    "codex": call("exec_command", cmd="echo 42"),
    "mini-swe-agent": call("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && echo 42"),
}
NPM = ("claude-code", "codex")
# What asks for the answer by a call of a tool of its own, or ends by a command.
LAST = {"smolagents": turn(call("final_answer", answer="Answer: 42")), "mini-swe-agent": None}


def cases():
    for file in sorted(AGENTS.glob("*.toml")):
        yield pytest.param(file.stem, marks=[needs("npm" if file.stem in NPM else "python")])


@pytest.mark.parametrize("stage", ["token-in"], indirect=True)
@pytest.mark.parametrize("name", list(cases()))
def test_an_agent_file_runs(stage, name, tmp_path):
    tool = CALLS.get(name, call("calculator", expression="40 + 2"))
    last = LAST.get(name, "Answer: 42")
    stage.engine.script = [turn(tool), *([last] if last else [])]
    (tmp_path / "sums.jsonl").write_text(json.dumps({"prompt": "What is 40 + 2?", "reference": "42"}) + "\n")
    (tmp_path / "sums_tools.py").write_text(
        "from agentworld.tasks.environments import Calculator\n\n\ndef tools(task):\n    return Calculator()\n"
    )
    (tmp_path / "run.toml").write_text(
        'model = "policy"\nretries = 0\n[sampling]\nmax_tokens = 1000\n'
        f'[[agents]]\npath = "{AGENTS / name}.toml"\n'
        '[[task_sets]]\nfile = "sums.jsonl"\nchecker = "contains"\nheldout = 0.0\nenvironment = "sums_tools:tools"\n'
    )
    report = tmp_path / "report.json"
    paths = os.pathsep.join([str(installed.python().parent), stage.environment()["PATH"]])
    run = stage.run(
        sys.executable, "-m", "agentworld", "run", str(tmp_path / "run.toml"), "--report", str(report), PATH=paths,
    )  # fmt: skip
    assert run.code == 0, f"{run.output[-3000:]}\n{run.errors[-3000:]}\n{report.exists() and report.read_text()}"
    (rollout,) = json.loads(report.read_text())["rollouts"]
    assert (rollout["status"], rollout["steps"]) == ("finished", 2 if last else 1)
    if last:
        assert rollout["reward"] == 1.0
    (trajectory,) = stage.new_trajectories()
    steps = list(stage.factory.all_steps(trajectory_id=trajectory.trajectory_id, include=("tokens", "messages")))
    assert all(step.response_ids and step.response_message for step in steps)
    if last:
        assert "42" in str([message.content for message in steps[1].prompt_messages])
