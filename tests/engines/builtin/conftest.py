import contextlib
import json

import aiohttp
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from agentworld.engines.builtin.models import open_model, quiet_transformers  # noqa: E402
from agentworld.engines.builtin.server import BuiltinEngine, EngineSettings  # noqa: E402
from agentworld.engines.http_surface import EngineApp, Server  # noqa: E402
from tests.engines.builtin.models import save_model  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Two threads on busy cores are far slower than one at these sizes."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def model_directory(tmp_path_factory):
    with quiet_transformers():
        return save_model(tmp_path_factory.mktemp("tiny"), seed=1)


class Client:
    """A running engine and a session to talk to it."""

    def __init__(self, engine, url, session, log):
        self.engine, self.url, self.session, self.log = engine, url, session, log

    async def raw(self, body, route="/v1/completions"):
        async with self.session.post(self.url + route, json=body) as reply:
            return reply.status, await reply.read()

    async def __call__(self, body, route="/v1/completions"):
        status, raw = await self.raw(body, route)
        assert status == 200, raw
        return json.loads(raw)

    def logged(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@pytest.fixture
async def start(model_directory, tmp_path):
    """Start engines; they stop with the test."""
    async with contextlib.AsyncExitStack() as stack:

        async def run(**settings):
            given = EngineSettings(model=str(settings.pop("model", model_directory)), **settings)
            engine = BuiltinEngine(open_model(given.model, max_model_len=given.max_model_len), given)
            log = tmp_path / f"tokens-{id(engine)}.jsonl"
            engine.start()
            stack.callback(engine.stop)
            server = Server(EngineApp(engine, log))
            await server.start()
            stack.push_async_callback(server.stop)
            session = await stack.enter_async_context(aiohttp.ClientSession())
            return Client(engine, server.url, session, log)

        yield run


@pytest.fixture
async def client(start):
    return await start()
