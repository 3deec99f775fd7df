"""What the guides show by command, by HTTP and in Python does what they say."""

import json
import os
import re
import shlex
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

from agentworld.cli import invoke
from agentworld.cli.serve import check_pool, settings_from
from agentworld.client import Factory
from agentworld.errors import ConfigError
from agentworld.factory import open_pool
from agentworld.records import Step
from tests.api.serving import Serving
from tests.cli.test_serve import serve
from tests.clients import installed
from tests.docs.pages import DOCS, blocks, section, tables

GUIDES = DOCS / "guides"
AGENT = """
from openai import OpenAI

client = OpenAI()
messages = [{"role": "user", "content": "What is here?"}]
print(client.chat.completions.create(model="policy", messages=messages).choices[0].message.content)
"""


@pytest.fixture(autouse=True)
def _folder(monkeypatch, tmp_path):
    for name in list(os.environ):
        if name.startswith("AGENTWORLD_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def command(page, beginning):
    """The words of the one command line of a page that begins so."""
    (line,) = re.findall(rf"^    ({re.escape(beginning)}.*)$", page.read_text(), re.MULTILINE)
    return shlex.split(line)


def python_of(page):
    (block,) = (block for block in blocks("python") if block.page == page)
    return compile(block.text, str(block), "exec")


@pytest.mark.parametrize("by", ["command", "HTTP"])
def test_a_trajectory_is_ended_as_the_guide_to_clients_says(by):
    with Serving() as server:
        name = "claude-code-SESSION"
        server.pool.append_steps([Step(step_id="s", trajectory_id=name, prompt_ids=[1], response_ids=[2])])
        if by == "command":
            assert (
                invoke([*command(GUIDES / "clients.md", "agentworld trajectories complete")[1:], "--url", server.url])
                == 0
            )
        else:
            _, url, _, header, _, body = command(GUIDES / "clients.md", "curl")
            status, _, _ = server.send("POST", urlsplit(url).path, body.encode(), dict([header.split(": ")]))
            assert status == 200
        ended = server.pool.get_trajectory(name)
        assert (ended.status, ended.readiness, ended.reward) == ("finished", "ready", 1.0)


@pytest.mark.parametrize("page", ["claude-code.md", "codex.md", "clients.md"])
def test_whoever_is_left_with_an_open_trajectory_is_told_how_to_end_it(page):
    assert "#ending-a-trajectory)" in (GUIDES / page).read_text()


def test_the_guide_to_clients_gets_the_clients_that_are_tested(tmp_path, monkeypatch, capsys):
    (rows,) = tables(section(GUIDES / "clients.md", "Getting them"))
    lines = [shlex.split(line.strip("`")) for _, line in rows]
    told = {word.split("[")[0] for words in lines for word in words[2:] if word != "-g"}
    tested = re.findall(r"^[\w-]+", (installed.HERE / "requirements.in").read_text(), re.MULTILINE)
    tested += json.loads((installed.HERE / "package.json").read_text())["dependencies"]
    assert told == set(tested)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for kind in ("npm", "python"):
        installed.folder(kind).mkdir(parents=True)
        (installed.folder(kind) / ".installed").touch()
    installed.say_where()
    assert f'PATH="{installed.programs()}:$PATH"' in capsys.readouterr().out
    assert re.search(r"npm-\w+/node_modules/\.bin$", str(installed.programs()))


def test_a_file_that_requires_keys_is_served_once_there_is_a_key(tmp_path):
    page = GUIDES / "operating.md"
    served = command(page, "agentworld serve --config")
    (tmp_path / served[-1]).write_text('pool = "sqlite:///pool.db"\nrequire_keys = true\n')
    settings = settings_from(tmp_path / served[-1], {}, {}, None)
    # A new pool has no key, so the order of the page is the one that works.
    with pytest.raises(ConfigError, match="no key with the scope admin"):
        check_pool(settings)
    (tmp_path / "pool.db").unlink()
    made, after = page.read_text().rsplit("agentworld keys create", 1)
    assert "require_keys" in made
    assert after.index("agentworld serve --config") < 200
    assert invoke(shlex.split("keys create" + after.splitlines()[0])) == 0
    check_pool(settings)


def test_keys_are_made_in_python_as_the_guide_says(capsys):
    exec(python_of(GUIDES / "operating.md"), {})
    assert capsys.readouterr().out.startswith("aw-k-")
    with open_pool("sqlite:///pool.db") as pool:
        (key,) = pool.list_keys()
    assert (key.name, key.scopes, key.revoked_at is None) == ("trainer-1", ("lease",), False)
    assert key.expires_at - key.created_at == pytest.approx(30 * 86_400)


def test_what_the_page_on_the_pool_includes_over_http_comes():
    (path,) = re.findall(r"`GET (/api/v1/steps\?[^`]+)`", section(DOCS / "pool.md", "Reading"))
    with Serving() as server:
        step = Step(step_id="s", trajectory_id="t1", prompt_ids=[1], response_ids=[2], response_logprobs=[-0.5])
        server.pool.append_steps([step])
        (got,) = server.get(path)[1]["items"]
    assert (got["prompt_ids"], got["response_ids"], got["response_logprobs"]) == ([1], [2], [-0.5])


def test_a_scripted_engine_answers_as_the_guide_to_tests_says(capsys):
    exec(python_of(GUIDES / "testing.md"), {})
    assert capsys.readouterr().out.splitlines() == ["No tools.", '{"command": "ls"}', "2 What is here?"]


def test_a_scripted_engine_stands_behind_the_gateway_as_the_guide_says(tmp_path):
    page = GUIDES / "testing.md"
    program = next(block.text for block in blocks("python") if block.page == page)
    (tmp_path / "agent_script.py").write_text(program.partition("\nwith ")[0])
    (tmp_path / "agent.py").write_text(AGENT)
    starts = command(page, "python -m agentworld.testing")
    starts[0], starts[starts.index("--port") + 1] = sys.executable, "0"
    engine = subprocess.Popen([*starts, "--die-with-parent"], stdout=subprocess.PIPE, text=True)
    try:
        served = command(page, "agentworld serve")[2:]
        served[served.index("--upstream") + 1] = engine.stdout.readline().strip()
        with serve(*served) as server:
            url = server.ready().url
            _, _, *rest = command(page, "agentworld exec")
            rest[rest.index("python")] = sys.executable
            executed = [sys.executable, "-m", "agentworld", "exec", "--url", url, *rest]
            run = subprocess.run(executed, capture_output=True, text=True, timeout=150)
            assert (run.returncode, run.stdout) == (0, "No tools.\n"), run.stderr
            with Factory(url) as factory:
                (step,) = factory.list_steps(include=["tokens"]).items
    finally:
        engine.terminate()
        engine.wait(timeout=100)
        engine.stdout.close()
    assert step.token_source == "engine"
    assert len(step.response_ids) == len("No tools.") + 1  # and the end of the turn
