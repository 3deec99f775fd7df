"""The life of one worker, and how its application starts and stops."""

import asyncio
import os
import signal
import socket
import sys

import pytest

from agentworld.errors import AgentWorldError
from agentworld.http_server import running
from agentworld.http_server.lifespan import Lifespan
from tests.http_server.serving import OUTER, Client, answers, get, reply, until


def test_workers_share_a_socket_that_does_not_block():
    with running.bound("127.0.0.1", 0) as first, running.bound("127.0.0.1", first.getsockname()[1]) as second:
        assert first.getsockname() == second.getsockname()
        for each in (first, second):
            assert each.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
            assert not each.getblocking()


@pytest.mark.skipif(not os.path.exists("/proc/net/if_inet6"), reason="needs IPv6")
def test_an_address_with_colons_is_one_of_ipv6():
    with running.bound("::1", 0) as listening:
        assert listening.family is socket.AF_INET6


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
@pytest.mark.parametrize("number", running.ENDING)
async def test_a_signal_ends_it_after_what_is_under_way(monkeypatch, number):
    assert set(running.ENDING) == {signal.SIGTERM, signal.SIGINT}
    bound, listening, events, gate = running.bound, [], [], asyncio.Event()

    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            for _ in range(2):
                kind = (await receive())["type"]
                events.append(kind)
                await send({"type": f"{kind}.complete"})
            return
        events.append(send.__self__._connection._listener.stall_seconds)
        await gate.wait()
        events.append("answered")
        await reply(send)

    def keeping(host, port):
        listening.append(bound(host, port))
        return listening[0]

    monkeypatch.setattr(running, "bound", keeping)
    begun = running.run(app, "127.0.0.1", 0, stall_seconds=7.0, ending=lambda: events.append("ending"))
    served = asyncio.ensure_future(begun)
    async with asyncio.timeout(OUTER):
        await until(lambda: listening)
        client = Client(*await asyncio.open_connection(*listening[0].getsockname()))
        client.send(get())
        await until(lambda: 7.0 in events)
        os.kill(os.getpid(), number)
        await until(lambda: "ending" in events)
        gate.set()
        ((status, headers, _),) = answers(await client.rest())
        client.writer.close()
        await served
    assert (status, headers[b"connection"]) == (200, b"close")
    assert events == ["lifespan.startup", 7.0, "ending", "answered", "lifespan.shutdown"]


def starting(*messages, error=None):
    async def app(scope, receive, send):
        await receive()
        for message in messages:
            await send({"type": f"lifespan.{message}", "message": "no pool"})
        if error is not None:
            raise error

    return Lifespan(app)


@pytest.mark.parametrize(
    ("lifespan", "error", "words"),
    [
        (starting(error=KeyError("raised")), KeyError, "raised"),
        (starting(), AgentWorldError, "ended during startup"),
        (starting("startup.failed"), AgentWorldError, "startup failed: no pool"),
        (starting("startup.failed", error=KeyError("raised")), KeyError, "raised"),
    ],
    ids=["raises", "ends", "fails", "fails and raises"],
)
async def test_what_stands_against_a_start_is_raised(lifespan, error, words):
    async with asyncio.timeout(OUTER):
        with pytest.raises(error, match=words):
            await lifespan.startup()


async def test_an_application_that_no_longer_runs_is_not_stopped():
    lifespan = starting("startup.complete")
    async with asyncio.timeout(OUTER):
        await lifespan.shutdown()
        await lifespan.startup()
        await lifespan.shutdown()
