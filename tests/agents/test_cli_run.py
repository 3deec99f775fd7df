"""`agentworld run` as a process, and the examples as they stand in the repository."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from agentworld.cli import invoke
from agentworld.tasks.teacher import reply
from agentworld.testing import ScriptedReply

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
CONFIG = """
model = "m"
rollouts = 2
[[agents]]
kind = "loop"
[[task_sets]]
file = "words.jsonl"
name = "words"
heldout = 0.0
checker = "own:check"
"""


def start(url, *arguments, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AGENTWORLD_")}
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment, "AGENTWORLD_URL": url, **variables},
    )


def run(url, *arguments, **variables):
    process = start(url, *arguments, **variables)
    output, errors = process.communicate(timeout=120)
    return process.returncode, output, errors


@pytest.fixture
def here(monkeypatch, capsys):
    """As `run`, for commands that start no process and are sent no signal: in this process."""
    # What a configuration names is found beside it, for the time of the test.
    monkeypatch.setattr(sys, "path", list(sys.path))
    sys.modules.pop("own", None)

    def run(url, *arguments):
        for name in [name for name in os.environ if name.startswith("AGENTWORLD_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("AGENTWORLD_URL", url)
        code = invoke(list(arguments))
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def config(tmp_path):
    (tmp_path / "words.jsonl").write_text('{"prompt": "say one", "reference": "one"}\n')
    (tmp_path / "own.py").write_text("def check(answer, reference):\n    return reference in answer\n")
    path = tmp_path / "run.toml"
    path.write_text(CONFIG)
    return path


def test_a_run_prints_its_numbers_and_writes_its_report(here, url, engine, config, tmp_path):
    engine.script = "one, I say"
    report = tmp_path / "report.json"
    code, output, errors = here(url, "run", str(config), "--name", "cli-1", "--report", str(report))
    assert code == 0, errors
    assert re.search(r"words +loop +1 +2 +0 +0 +1 ", output)
    assert "cli-1: 2 rollouts" in errors
    written = json.loads(report.read_text())
    assert [rollout["reward"] for rollout in written["rollouts"]] == [1.0, 1.0]
    code, output, errors = here(url, "run", str(config), "--name", "cli-1")
    assert code == 0
    assert "2 rollouts, 2 of them complete already" in errors
    assert output.splitlines()[-1] == "cli-1: 2 complete already"
    config.write_text(CONFIG.replace("rollouts = 2", "rollouts = 3"))
    _, output, _ = here(url, "run", str(config), "--name", "cli-1")
    assert re.fullmatch(r"cli-1: 1 rollout in [\d.]+ s, 2 complete already", output.splitlines()[-1])


def test_a_report_that_cannot_be_written_is_known_before_the_run(here, url, config, engine, tmp_path):
    asked = len(engine.requests)
    code, _, errors = here(url, "run", str(config), "--report", str(tmp_path / "none" / "report.json"))
    assert (code, len(engine.requests) - asked) == (1, 0)
    assert "there is no folder" in errors


def test_a_folder_is_no_report(here, url, config, engine, tmp_path):
    asked = len(engine.requests)
    code, _, errors = here(url, "run", str(config), "--report", str(tmp_path))
    assert (code, len(engine.requests) - asked) == (1, 0)
    assert f"{tmp_path} is a folder. Give --report the name of a file" in errors


def test_failed_rollouts_are_one_line_and_the_exit_code(here, url, engine, config):
    engine.script = ScriptedReply(status=400, error_body={"error": {"message": "out of cheese"}})
    config.write_text(f"retries = 0\n{CONFIG}")
    code, output, errors = here(url, "run", str(config), "-q")
    assert code == 1
    assert re.fullmatch(r"agentworld: 2 rollouts failed, most often: .*out of cheese.*\n", errors)
    assert "Traceback" not in output + errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_stop_it_cleanly(url, engine, config, factory, number):
    engine.script = ScriptedReply(text="late", first_token_delay=60.0)
    name = f"stopped-{number}"
    process = start(url, "-m", "agentworld", "run", str(config), "--name", name)
    group = None
    while group is None:
        assert process.poll() is None, process.communicate()
        opened = factory.list_trajectories(where=f"metadata.run == '{name}' and open").items
        group = opened[0].group_id if len(opened) == 2 else None
    process.send_signal(number)
    _, errors = process.communicate(timeout=150)
    assert process.returncode == 130
    assert f"agentworld run {config} --name {name}` goes on" in errors
    assert "Traceback" not in errors
    assert [each.status for each in factory.list_trajectories(group_id=group).items] == ["abandoned"] * 2


@pytest.mark.parametrize(
    ("address", "text", "says"),
    [
        (None, None, "does not exist"),
        (None, "model = ", "is not valid TOML"),
        (None, CONFIG.replace("own:check", "nothing:check"), "'nothing:check' cannot be imported"),
        ("http://127.0.0.1:1", CONFIG.replace("m", "m", 1), "Nothing answers at http://127.0.0.1:1: "),
    ],
)
def test_what_is_wrong_is_one_line(here, url, config, address, text, says):
    if text is None:
        config.unlink()
    else:
        config.write_text(text)
    code, _, errors = here(address or url, "run", str(config), "-q", "--name", "bad")
    assert code == 1
    assert says in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize("name", [[], ["--name", "lost"]])
def test_an_engine_is_not_taken_for_a_server(here, engine, config, name):
    lines = [f'{{"prompt": "say {number}", "reference": "{number}"}}\n' for number in range(20)]
    (config.parent / "words.jsonl").write_text("".join(lines))
    code, _, errors = here(engine.url, "run", str(config), "-q", *name)
    assert code == 1
    assert errors.startswith(f"agentworld: {engine.url} is no AgentWorld server")
    assert errors.count("\n") == 1


def test_the_quickstart(url, engine):
    engine.script = "Paris"
    code, output, errors = run(url, str(EXAMPLES / "quickstart.py"))
    assert code == 0, errors
    assert output.count("2 steps  reward 1.0") == 2
    assert len(re.findall(r"^stp_\w+  \d+ prompt ids, \d+ sampled", output, re.MULTILINE)) == 4


@pytest.mark.slow
def test_the_example_run(url, engine, tmp_path):
    pytest.importorskip("reasoning_gym")

    def script(request):
        asks_for_a_capital = "capital" in str(request.messages[0]["content"])
        return "Paris, Tokyo, Nairobi, Lima, Oslo" if asks_for_a_capital else reply(request)

    engine.script = script
    report = tmp_path / "report.json"
    code, output, errors = run(
        url, "-m", "agentworld", "run", str(EXAMPLES / "run.toml"), "--name", "example", "--report", str(report)
    )
    assert code == 0, errors + output
    rewards = {
        (each["task_set"], each["agent"]): each["mean_reward"] for each in json.loads(report.read_text())["summaries"]
    }
    assert rewards["arithmetic", "loop"] == rewards["arithmetic", "openai"] == 1.0
    assert 0.0 < rewards["capitals", "loop"] == rewards["capitals", "openai"] < 1.0
