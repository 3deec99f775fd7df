"""The commands of the engines' guide for the engine that runs here."""

import re
import shlex
import subprocess
import sys

import pytest

from agentworld.client import Factory
from tests.docs.pages import DOCS

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]
ASK = """
import openai
said = [{"role": "user", "content": "hi"}]
print(openai.OpenAI().chat.completions.create(model="m", max_tokens=8, messages=said).usage.completion_tokens)
"""


def commands():
    """The command lines of the section."""
    section = (DOCS / "guides" / "engines.md").read_text().split("\n## agentworld engine\n")[1].split("\n## ")[0]
    return [shlex.split(line) for line in re.findall(r"^    (agentworld .+)$", section, re.MULTILINE)]


def start(command, *more):
    """The process of a command, and the address that it prints."""
    process = subprocess.Popen(
        [sys.executable, "-m", *command, *more, "--port", "0", "--die-with-parent"],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    return process, re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())[0]


def test_agentworld_engine_as_the_guide_starts_it(tmp_path):
    engine, serve = commands()
    assert engine[-2:] == ["--port", "8401"]
    assert "http://127.0.0.1:8401" in serve
    running = []
    try:
        first, engine_url = start(engine[:-2])
        running.append(first)
        served = [engine_url if word == "http://127.0.0.1:8401" else word for word in serve]
        second, url = start(served, "--pool", f"sqlite:///{tmp_path}/pool.db", "--log-level", "warning")
        running.append(second)
        run = subprocess.run(
            [sys.executable, "-m", "agentworld", "exec", "--url", url, "--", sys.executable, "-c", ASK],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert run.returncode == 0, run.stderr
        with Factory(url) as factory:
            (step,) = factory.list_steps(include=("tokens", "logprobs")).items
        assert step.token_source == "token-in"
        assert len(step.response_ids) == len(step.response_logprobs) == int(run.stdout)
    finally:
        for process in running:
            process.terminate()
            process.communicate(timeout=60)
