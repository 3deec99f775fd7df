"""Environments over HTTP: the same object, one address a rollout."""

import aiohttp
import pytest

from agentworld.agents.environment_server import EnvironmentServer
from agentworld.tasks.environments import Calculator


class Broken(Calculator):
    def step(self, name, arguments):
        raise RuntimeError("out of order")


@pytest.fixture
async def session():
    async with aiohttp.ClientSession() as session:
        yield session


async def test_tools_and_steps(session):
    async with EnvironmentServer() as server, server.serving(Calculator()) as url:
        assert url.startswith("http://127.0.0.1:")
        async with session.get(f"{url}/tools") as reply:
            assert (await reply.json())["tools"] == list(Calculator().tools)
        for arguments in ('{"expression": "12 + 30"}', {"expression": "12 + 30"}):
            async with session.post(f"{url}/step", json={"name": "calculator", "arguments": arguments}) as reply:
                assert await reply.json() == {"content": "42", "done": False}
        async with session.post(f"{url}/step", json={"name": "calculator", "arguments": "not JSON"}) as reply:
            assert (await reply.json())["content"].startswith("error:")


async def test_bad_actions_and_unknown_addresses(session):
    async with EnvironmentServer() as server:
        async with server.serving(Calculator()) as url:
            for body in (b"", b"[]", b'{"name": 1}', b"{"):
                async with session.post(f"{url}/step", data=body) as reply:
                    assert reply.status == 400
                    assert "cannot be read" in (await reply.json())["error"]["message"]
            async with session.get(f"{url}x/tools") as reply:
                assert reply.status == 404
        async with session.post(f"{url}/step", json={"name": "calculator"}) as reply:
            assert reply.status == 404


async def test_two_rollouts_have_different_addresses():
    async with EnvironmentServer() as server, server.serving(Calculator()) as a, server.serving(Calculator()) as b:
        assert a != b


async def test_a_broken_environment_is_an_error_in_words(session):
    async with (
        EnvironmentServer() as server,
        server.serving(Broken()) as url,
        session.post(f"{url}/step", json={"name": "calculator"}) as reply,
    ):
        assert reply.status == 500
        assert "out of order" in (await reply.json())["error"]["message"]
