"""`agentworld train` that evaluates through a gateway: numbers with counts, once a version, also after a stop."""

import json

import pytest

from agentworld.cli import invoke
from agentworld.cli.train_evaluation import evaluation_line
from agentworld.errors import AgentWorldError
from agentworld.records import NewTrajectory, Step
from agentworld.tasks.teacher import reply
from agentworld.testing import ScriptedReply
from agentworld.trainers.metrics import read_lines

JOB = """
url = "{url}"
model = "pocket"
out = "{out}"
batches = 2
timeout = 5
run = "held"
[batch]
size = 1
channel = "lessons"
[settings]
method = "sft"
threads = 1
[evaluation]
model = "{model}"
every = 2
rollouts = 2
[[evaluation.task_sets]]
ready = "arithmetic"
count = 3
[[evaluation.task_sets]]
ready = "conversion"
count = 2
"""


def lessons(factory):
    for number in range(2):
        name = f"lesson-{number}"
        factory.create_trajectory(NewTrajectory(trajectory_id=name, channel="lessons"))
        factory.append_steps([Step(step_id=name, trajectory_id=name, prompt_ids=[1, 2], response_ids=[3 + number])])
        factory.complete_trajectory(name, "finished", 1.0)


def evaluations(factory):
    found = factory.all_trajectories(channel="val")
    return [one for one in found if one.metadata["run"].startswith("held-evaluation")]


def test_what_is_due_is_evaluated_once_and_gone_on_with(url, engine, factory, tmp_path, capsys, monkeypatch):
    engine.script = reply
    lessons(factory)
    path = tmp_path / "train.toml"
    path.write_text(JOB.format(url=url, out=tmp_path / "out", model=engine.model))
    asked = []

    def failing(request):
        asked.append(request)
        return reply(request) if len(asked) < 5 else ScriptedReply(status=400, error_body="broken")

    engine.script = failing  # A fault of the engine in the middle of the first evaluation, which stops the job.
    monkeypatch.setattr("agentworld.cli.train_evaluation.GatewayEvaluator.evaluate", _stopped_after_running)
    assert invoke(["train", str(path)]) == 1
    assert "stopped here" in capsys.readouterr().err
    monkeypatch.undo()
    engine.script = reply
    assert invoke(["train", str(path)]) == 0
    said, warned = capsys.readouterr()
    assert f"no [publish], so evaluations are of what serves {engine.model} at {url}, and not of what" in warned
    assert "evaluation of version 0: reward 1.000 ± 0.000 over 5 tasks" in said
    assert "evaluation of version 2: reward" in said
    assert "evaluation of version 1" not in said
    unjudged = {"reward": None, "standard_error": None, "tasks": 5.0, "failed": 0.0}
    assert evaluation_line(3, unjudged) == "evaluation of version 3: no reward over 5 tasks"
    first = evaluations(factory)
    complete = [one for one in first if one.status == "finished"]
    assert len(complete) == 2 * 2 * 5
    assert {one.metadata["evaluation"] for one in complete} == {0, 2}
    assert invoke(["train", str(path)]) == 0
    assert evaluations(factory) == first
    lines = read_lines(tmp_path / "out" / "metrics.jsonl")
    order = [("evaluation", 0), ("train", 1), ("train", 2), ("evaluation", 2)]
    assert [(line.kind, line.step) for line in lines] == order
    values = lines[0].values
    assert (values["reward"], values["tasks"], values["rollouts"], values["failed"]) == (1.0, 5, 10, 0)
    assert (values["arithmetic/tasks"], values["conversion/rollouts"]) == (3, 4)
    told = [event.data for event in factory.events(channel="metrics") if event.kind == "metrics.added"]
    assert [(data["run"], data["kind"], data["step"]) for data in told] == [("held", *each) for each in order]
    assert told[0]["values"] == json.loads(json.dumps(values))


def _stopped_after_running(self, version):
    """An evaluation of which some rollouts are done when its process ends."""
    import asyncio

    report = asyncio.run(self._run(version))
    assert 0 < report.failed < len(report.rollouts)
    raise AgentWorldError("stopped here")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (('model = "scripted"\nevery', "every"), "needs the model of the gateway"),
        (("every = 2", "every = 0"), "every must be at least 1"),
        (('ready = "arithmetic"', 'ready = "nothing"'), "nothing"),
        (("count = 3", "cuont = 3"), "cuont"),
    ],
)
def test_an_evaluation_that_cannot_be_is_told_before_training(tmp_path, capsys, change, says):
    text = JOB.format(url="http://127.0.0.1:9", out=tmp_path / "out", model="scripted")
    assert change[0] in text
    path = tmp_path / "train.toml"
    path.write_text(text.replace(*change))
    assert invoke(["train", str(path)]) == 1
    assert says in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
