"""A whole server for the agents: the real gateway on an in-memory pool, in front of a scripted engine."""

import os
import re
import subprocess
import sys
import threading

import pytest

from agentworld.client.factory import Factory
from agentworld.testing import ScriptedEngine

ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")


@pytest.fixture(scope="session")
def running_engine():
    with ScriptedEngine("ok") as engine:
        yield engine


@pytest.fixture(scope="session")
def url(running_engine):
    """The address of the server."""
    command = [sys.executable, "-m", "agentworld", "serve", "--pool", "memory://", "--port", "0", "--die-with-parent"]
    command += ["--upstream", running_engine.url, "--driver", "builtin", "--model", running_engine.model]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AGENTWORLD_")}
    server = subprocess.Popen(
        [*command, "--log-level", "warning"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    said = []
    for line in server.stdout:
        said.append(line)
        if found := ADDRESS.search(line):
            break
    else:
        pytest.fail(f"the server did not start: {''.join(said)}")
    # Nobody reads on otherwise, and a full pipe would stop the server.
    reader = threading.Thread(target=server.stdout.read, daemon=True)
    reader.start()
    yield found.group()
    server.terminate()
    server.wait(timeout=120)
    reader.join(timeout=60)
    server.stdout.close()


@pytest.fixture
def engine(running_engine):
    """The engine; a test sets its `script`."""
    yield running_engine
    running_engine.script = "ok"


@pytest.fixture
def factory(url):
    with Factory(url) as factory:
        yield factory
