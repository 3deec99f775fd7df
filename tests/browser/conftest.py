"""The page in headless Chromium, on a server whose pool a real run fills."""

import os
import shutil

import pytest

from agentworld.config import ModelSettings
from agentworld.testing import ScriptedEngine
from tests.api.serving import Serving
from tests.browser.driving import ARGUMENTS, Visit, play

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def chromium():
    """A running browser; skips where there is none, which `make test-browser` does not. For one file, as Playwright
    keeps an event loop running in this thread, which asynchronous tests of other files cannot have.
    """
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed; see make test-browser")
    if CHROMIUM is None:
        pytest.skip("no Chromium on the path; make test-browser says how to get one, CHROMIUM names one")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def engine():
    """What agents talk to: it calls a tool, then answers."""
    with ScriptedEngine(lambda request: f"It is **{request.call}** `done`.", model="m") as running:
        yield running


@pytest.fixture
def serving(engine):
    """Makes servers with the engine behind them; ends them."""
    running = []

    def serve(**settings):
        model = ModelSettings(name="m", upstream=engine.url, driver="builtin", tokens="engine")
        server = Serving(models=(model,), **settings)
        server.__enter__()
        running.append(server)
        return server

    yield serve
    for server in running:
        server.__exit__()


@pytest.fixture
def server(serving):
    """A server without keys, after a run of two groups of two."""
    started = serving()
    play(started, groups=2, rollouts=2)
    return started


@pytest.fixture
def visit(chromium):
    """Opens a page of a server; whatever it asked elsewhere, and every fault of its scripts, fails the test."""
    visits = []

    def open_page(server, path="/", **context):
        found = Visit(chromium, server, path, **context)
        visits.append(found)
        return found

    yield open_page
    for each in visits:
        each.close()
