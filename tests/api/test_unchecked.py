"""Applications that no check of keys stands before give nothing away."""

import json

import pytest

from agentworld.api.app import create_control
from agentworld.config import ModelSettings, ServeSettings
from agentworld.gateway import create_gateway
from agentworld.gateway.access import Access
from agentworld.pool.memory import MemoryPool

MODEL = ModelSettings(name="m", upstream="http://127.0.0.1:9", driver="builtin", tokens="engine")


def control(settings, pool):
    """The control API without what asks for keys before it."""
    return create_control(settings, pool, Access(pool, required=settings.keys_required))


async def asked(app, path, grant=None):
    """The status and the body of a GET; `grant`: what was granted to it."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http", "http_version": "1.1", "method": "GET", "path": path, "raw_path": path.encode(),
        "query_string": b"", "root_path": "", "scheme": "http", "server": ("127.0.0.1", 1), "client": ("127.0.0.1", 2),
        "headers": [(b"host", b"127.0.0.1")],
    }  # fmt: skip
    await app(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], json.loads(body)


@pytest.mark.parametrize(("make", "path"), [(create_gateway, "/v1/models"), (control, "/api/v1/stats")])
async def test_a_gateway_or_a_control_api_alone_grants_nothing(make, path):
    pool = MemoryPool()
    app = make(ServeSettings(models=(MODEL,)), pool)
    status, said = await asked(app, path)
    assert (status, said["error"]["code"]) == (403, "forbidden")
    assert "no check of keys" in said["error"]["message"]
    # What is open to everybody still answers.
    assert await asked(app, "/healthz") == (200, {"status": "ok"})
    pool.close()
