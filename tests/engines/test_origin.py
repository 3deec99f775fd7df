"""Pages of other sites may not drive an engine on this machine."""

import aiohttp
import pytest

from agentworld.testing import ScriptedEngine


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (None, 200),
        ("http://localhost:3000", 200),
        ("https://evil.example", 403),
        ("null", 403),
        ("http://127.0.0.1.evil.example", 403),
    ],
)
async def test_only_pages_of_this_machine_may_reload_weights(origin: str | None, status: int) -> None:
    async with ScriptedEngine("ok") as engine, aiohttp.ClientSession() as session:
        headers = {"Origin": origin} if origin else {}
        body = {"path": "/weights", "version": 1}
        async with session.post(f"{engine.url}/reload", json=body, headers=headers) as reply:
            assert reply.status == status
        assert engine.policy.version == (1 if status == 200 else 0)
