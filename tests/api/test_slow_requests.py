"""Who sends a request slowly is told so in time, and holds nothing."""

import contextlib
import json
import socket
from urllib.parse import urlsplit

import pytest

from agentworld.config import ModelSettings
from agentworld.testing import ScriptedEngine
from tests.api.serving import Serving


@contextlib.contextmanager
def waiting(body_timeout):
    """A server that waits so long for the bodies of requests."""
    with ScriptedEngine("four", model="m") as engine:
        model = ModelSettings(name="m", upstream=engine.url, driver="builtin", tokens="engine")
        with Serving(models=(model,), body_timeout=body_timeout) as running:
            yield running


@pytest.fixture(scope="module")
def server():
    with waiting(0.1) as running:
        yield running


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/v1/steps"])
def test_a_body_that_does_not_come_is_not_waited_for(server, path):
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port), timeout=100) as connection:
        kind = "Content-Type: application/json\r\nContent-Length: 100\r\n"
        head = f"POST {path} HTTP/1.1\r\nHost: {address.netloc}\r\n{kind}"
        connection.sendall(head.encode() + b'\r\n{"messages": [')
        reply = b""
        while b"\r\n\r\n" not in reply or not reply.endswith(b"}"):
            piece = connection.recv(65_536)
            assert piece, reply
            reply += piece
    assert reply.startswith(b"HTTP/1.1 408 ")
    assert json.loads(reply.partition(b"\r\n\r\n")[2])["error"]["code"] == "request_timeout"
    assert server.pool.stats().exchanges == 0


def test_one_that_comes_in_time_is_taken():
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * 1_000_000}]}).encode()
    with waiting(60.0) as server:
        assert server.send("POST", "/v1/chat/completions", body)[0] == 200
