"""The real server on a pool in a file, in front of a scripted engine; clients run in a home of their own, kept to
loopback."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading

import pytest

from agentworld.client import Factory
from agentworld.testing import ScriptedEngine
from tests.clients.guards import RecordingProxy
from tests.clients.installed import is_installed
from tests.clients.stage import Stage

ADDRESS = re.compile(r"serves (http://127\.0\.0\.1:\d+)")


@pytest.fixture(scope="session")
def running_engine():
    with ScriptedEngine("ok", guided=True) as engine:
        yield engine


@pytest.fixture(scope="session")
def servers(running_engine, tmp_path_factory):
    """Address of the server with that token mode; started on first use."""
    started, running = {}, []

    def address(tokens):
        if tokens not in started:
            store = tmp_path_factory.mktemp("pool") / "pool.db"
            command = [sys.executable, "-m", "agentworld", "serve", "--pool", f"sqlite:///{store}", "--port", "0"]
            command += ["--upstream", running_engine.url, "--model", running_engine.model, "--tokens", tokens]
            command += ["--tokenizer", "byte"] if tokens == "token-in" else []
            server = subprocess.Popen(
                [*command, "--log-level", "warning", "--die-with-parent"],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                text=True,
                env={name: value for name, value in os.environ.items() if not name.startswith("AGENTWORLD_")},
            )
            said = []
            for line in server.stdout:
                said.append(line)
                if found := ADDRESS.search(line):
                    break
            else:
                server.wait(timeout=30)
                server.stdout.close()
                pytest.fail(f"the server did not start: {''.join(said)}")
            # Nobody reads on otherwise, and a full pipe would stop the server.
            reader = threading.Thread(target=server.stdout.read, daemon=True)
            reader.start()
            running.append((server, reader))
            started[tokens] = found[1]
        return started[tokens]

    yield address
    for server, reader in running:
        server.terminate()
        server.wait(timeout=30)
        reader.join(timeout=5)
        server.stdout.close()


@pytest.fixture(params=["token-in", "engine"])
def stage(request, running_engine, servers, tmp_path):
    """A stage for one client; the whole test fails if the client tried to reach anything but loopback."""
    url = servers(request.param)
    with RecordingProxy() as proxy, Factory(url) as factory:
        made = Stage(running_engine, factory, url, request.param, tmp_path, proxy)
        yield made
        made.check_loopback()
    running_engine.script = "ok"


def needs(kind):
    """A mark for tests of clients of that kind."""
    reason = f"not installed: python -m tests.clients.installed {kind}"
    if kind == "npm" and shutil.which("npm") is None:
        reason = "there is no npm, which would fetch it"
    return pytest.mark.skipif(not is_installed(kind), reason=reason)
