"""`agentworld exec`: any command as one trajectory, through the real gateway."""

import os
import re
import signal
import subprocess
import sys

import pytest

from agentworld.cli import invoke
from agentworld.testing import ScriptedReply

ASK = (
    "import os, json, urllib.request as u\n"
    "body = json.dumps({'model': 'm', 'messages': [{'role': 'user', 'content': 'hello'}]}).encode()\n"
    "headers = {'Content-Type': 'application/json', 'Authorization': 'Bearer ' + os.environ['OPENAI_API_KEY']}\n"
    "url = os.environ['OPENAI_BASE_URL'] + '/chat/completions'\n"
    "print(json.load(u.urlopen(u.Request(url, body, headers)))['choices'][0]['message']['content'], flush=True)\n"
)


def start(url, *arguments, **options):
    command = [sys.executable, "-m", "agentworld", "exec", "--url", url, *arguments]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


@pytest.fixture
def run(capfd):
    """Runs the command line in this process, which starts the command alone; its code and what both printed."""

    def run(url, *arguments):
        code = invoke(["exec", "--url", url, *arguments])
        return code, *capfd.readouterr()

    return run


def trajectory_in(errors):
    return re.search(r"trj_\w+", errors).group()


def test_a_run_is_one_rewarded_trajectory(run, url, engine, factory):
    engine.script = "good day"
    reward = 'echo checking; echo "{\\"reward\\": 0.5, \\"seen\\": \\"$AGENTWORLD_TRAJECTORY_ID\\"}"'
    code, output, errors = run(url, "--reward-cmd", reward, "--group", "g1", "--", sys.executable, "-c", ASK)
    assert (code, output) == (0, "good day\n")
    found = factory.get_trajectory(trajectory_in(errors))
    assert (found.status, found.step_count, found.reward, found.group_id) == ("finished", 1, 0.5, "g1")
    assert found.agent == os.path.basename(sys.executable)
    assert f"{found.trajectory_id} finished, 1 step, reward 0.5" in errors
    assert "warning" not in errors


def test_its_exit_code_is_the_commands(run, url, factory):
    code, _, errors = run(url, "--reward-cmd", "echo 1", "--", sys.executable, "-c", f"{ASK}raise SystemExit(7)")
    found = factory.get_trajectory(trajectory_in(errors))
    assert code == 7
    assert (found.status, found.readiness, found.reward) == ("failed", "excluded", None)


def test_no_call_is_a_warning_that_says_why(run, url):
    code, _, errors = run(url, "--", sys.executable, "-c", "print('I think alone')")
    assert code == 0
    assert "warning: no call came through the gateway" in errors
    assert "OPENAI_BASE_URL" in errors


def test_calls_that_failed_are_counted_with_the_last_error(run, url, engine, factory):
    engine.script = ScriptedReply(status=400, error_body={"error": {"message": "out of cheese"}})
    code, _, errors = run(url, "--", sys.executable, "-c", ASK)
    assert code == 1
    assert re.search(r"warning: 1 call failed, and none got a reply\. The last: 400 .*out of cheese", errors)
    assert "no call came" not in errors
    failures = factory.list_exchanges(trajectory_in(errors))
    assert [each.error["status"] for each in failures] == [400]


def test_calls_that_the_gateway_refused_are_told(run, url, factory):
    refused = ASK.replace("'model': 'm'", "'temperature': 'hot'")
    code, _, errors = run(url, "--", sys.executable, "-c", f"try:\n    {refused.replace(chr(10), chr(10) + '    ')}\n"
                          "except Exception: pass")  # fmt: skip
    assert code == 0
    assert re.search(r"warning: 1 call failed, and none got a reply\. The last: 400 .*temperature", errors)
    assert "no call came" not in errors
    (found,) = factory.list_exchanges(trajectory_in(errors))
    assert (found.error["status"], found.error["code"]) == (400, "invalid_request")


def test_where_the_calls_cannot_be_read_the_code_stays(url, monkeypatch, capsys):
    from agentworld.cli import exec as command
    from agentworld.client.factory import Factory
    from agentworld.errors import ForbiddenError

    def refuse(self, trajectory_id, limit=1000):
        raise ForbiddenError("not yours")

    monkeypatch.setattr(Factory, "list_exchanges", refuse)
    code = command.exec_([sys.executable, "-c", "raise SystemExit(7)"], url=url, channel="train")
    assert code == 7
    assert "warning: whether calls failed cannot be told: not yours" in capsys.readouterr().err


def test_ctrl_c_during_the_reward_ends_the_trajectory(url, factory):
    process = start(url, "--reward-cmd", "echo judging >&2; exec sleep 600", "--", "true")
    said = process.stderr.readline()
    assert said == "judging\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=150)
    assert process.returncode == 130
    assert f"{trajectory_in(errors)} abandoned" in errors
    assert factory.get_trajectory(trajectory_in(errors)).status == "abandoned"


def test_a_useless_reward_is_a_warning(run, url, factory):
    code, _, errors = run(url, "--reward-cmd", "echo great", "--", sys.executable, "-c", ASK)
    found = factory.get_trajectory(trajectory_in(errors))
    assert (code, found.status, found.reward) == (0, "finished", None)
    assert "'great' is no reward" in errors


def test_time_out(run, url, factory):
    code, _, errors = run(url, "--timeout", "1.5", "--", sys.executable, "-c", f"{ASK}import time; time.sleep(600)")
    assert code == 128 + signal.SIGTERM
    assert factory.get_trajectory(trajectory_in(errors)).status == "truncated"


def test_signals_reach_the_command(url, factory):
    script = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
        "print('up', flush=True)\n"
        "time.sleep(600)\n"
    )
    process = start(url, "--", sys.executable, "-c", script)
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=150)
    assert process.returncode == 5
    assert factory.get_trajectory(trajectory_in(errors)).status == "abandoned"
    assert f"{trajectory_in(errors)} abandoned, 0 steps" in errors


def test_a_signal_while_the_command_starts_is_handed_on(url, factory, monkeypatch, capsys):
    """The signal comes when the process is there and nobody knows it yet."""
    from agentworld.cli import exec as command

    class Starting(subprocess.Popen):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Starting)
    code = command.exec_(["sleep", "600"], url=url, channel="train")
    errors = capsys.readouterr().err
    assert code == 128 + signal.SIGINT
    assert factory.get_trajectory(trajectory_in(errors)).status == "abandoned"


@pytest.mark.parametrize(
    ("address", "command", "says"),
    [
        (None, ["/no/such/agent"], "there is no program '/no/such/agent'"),
        ("http://127.0.0.1:1", ["true"], "Nothing answers at http://127.0.0.1:1"),
        ("here", ["true"], "is not the address of a server"),
    ],
)
def test_what_is_wrong_is_one_line(run, url, address, command, says):
    code, _, errors = run(address or url, "--", *command)
    assert code == 1
    assert says in errors
    assert errors.count("\n") == 1


def test_a_file_that_cannot_be_run_says_what_a_script_needs(run, url, tmp_path):
    script = tmp_path / "agent"
    script.write_text("no program")
    script.chmod(0o755)
    code, _, errors = run(url, "--", str(script))
    assert code == 1
    assert "cannot run" in errors
    assert "A script needs #!" in errors


def test_at_a_terminal_ctrl_c_reaches_the_command_once(url, factory):
    script = (
        "import signal, sys, time\n"
        "heard = []\n"
        "signal.signal(signal.SIGINT, lambda *_: heard.append(1))\n"
        "print('terminal', sys.stdin.isatty(), flush=True)\n"
        "while not heard: time.sleep(0.01)\n"
        "time.sleep(0.3)\n"
        "sys.exit(10 + len(heard))\n"
    )
    at_terminal = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
    command = [sys.executable, "-m", "agentworld", "exec", "--url", url, "--", sys.executable, "-c", script]
    with subprocess.Popen(
        [sys.executable, "-c", at_terminal, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "terminal True\n"
        process.stdin.write("\x03")
        process.stdin.flush()
        output = process.stdout.read()
        assert process.wait(timeout=150) == 11
    assert factory.get_trajectory(trajectory_in(output)).status == "abandoned"
    assert f"{trajectory_in(output)} abandoned, 0 steps" in output
