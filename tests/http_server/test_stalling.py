"""Clients that take nothing, little or late, and the end of a listener that has such."""

import asyncio
import math
from contextlib import asynccontextmanager

import pytest

from agentworld.http_server import connection
from tests.http_server.serving import OUTER, Recorder, body_of, chunked, get, reply, serving, until
from tests.http_server.test_requests import Loose

NEVER = 1e6


@pytest.fixture(autouse=True)
def frequent_sweeps(monkeypatch):
    monkeypatch.setattr("agentworld.http_server.listener.SWEEP_SECONDS", 0.01)


async def ended(server):
    async with asyncio.timeout(OUTER):
        await server.listener.end()
    assert not server.listener.connections


async def taking_nothing(server):
    """A client that does not read, and its connection."""
    client = await server.client()
    client.writer.transport.pause_reading()
    await until(lambda: server.listener.connections)
    (each,) = server.listener.connections
    return client, each


async def test_a_lingering_connection_does_not_hold_the_end(monkeypatch):
    monkeypatch.setattr(connection, "LINGER_SECONDS", NEVER)

    async def app(scope, receive, send):
        await reply(send, 413)

    async with serving(app) as server:
        client = await server.client(chunked(b"a"))
        await client.rest()
        assert server.listener.connections  # The client may still send.
        await ended(server)


async def test_a_stalled_answer_does_not_hold_the_end():
    told = []

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(400):
            await send({"type": "http.response.body", "body": bytes(60_000), "more_body": True})
        told.append((await receive())["type"])
        told.append((await receive())["type"])

    async with serving(app, stall_seconds=0.05) as server:
        client, each = await taking_nothing(server)
        client.send(get())
        await until(lambda: each.drained is not None)
        await ended(server)
        await until(lambda: len(told) == 2)
    assert told[1] == "http.disconnect"


async def test_an_answer_that_was_given_but_not_taken_does_not_hold_the_end(monkeypatch):
    monkeypatch.setattr(connection, "LINGER_SECONDS", 0.05)
    answered = []

    async def app(scope, receive, send):
        await reply(send, body=bytes(40_000))
        answered.append(scope["path"])

    async with serving(app, stall_seconds=NEVER) as server:
        client, each = await taking_nothing(server)
        sent = 0
        while not each._transport.get_write_buffer_size():
            client.send(get())
            sent += 1
            await until(lambda sent=sent: len(answered) == sent and each._current is None)
        assert each.drained is None
        await ended(server)


class Filled(Loose):
    """A transport with so many bytes that the client has not taken."""

    left, ended, aborted = 0, False, False

    def get_write_buffer_size(self):
        return self.left

    def write_eof(self):
        self.ended = True

    def abort(self):
        self.closed = self.aborted = True


def begun_until(gate):
    """An application whose answer begins at once, and comes whole once the gate is open."""

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await gate.wait()
        await send({"type": "http.response.body", "body": b"whole"})

    return app


@asynccontextmanager
async def connected(app, stall_seconds=50.0):
    async with serving(app, stall_seconds) as server:
        each, transport = connection.Connection(server.listener), Filled()
        each.connection_made(transport)
        try:
            yield each, transport
        finally:
            each.connection_lost(None)


async def while_others_run():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_who_takes_something_in_time_is_waited_for():
    async with connected(Recorder()) as (each, transport):
        transport.left = 100
        each.pause_writing()
        for now, left in ((1000.0, 70), (2000.0, 40)):
            transport.left = left
            each.expire(now)
            assert not transport.closed
            assert each.deadline == now + 50.0
        each.expire(3000.0)
        assert transport.closed


async def test_a_body_is_read_on_as_often_as_the_application_takes_of_it():
    taken = asyncio.Queue()

    async def app(scope, receive, send):
        while (await receive())["more_body"]:
            await taken.get()
        await reply(send)

    piece = bytes(connection.HELD + 1)
    async with connected(app) as (each, transport):
        each.received(memoryview(chunked(b"a")))
        await while_others_run()
        assert transport.resumes == 0  # It was not stopped.
        for number in (1, 2, 3):
            each.received(memoryview(b"%x\r\n%b\r\n" % (len(piece), piece)))
            assert (transport.pauses, transport.resumes) == (number, number - 1)
            taken.put_nowait(None)
            await until(lambda number=number: transport.resumes == number)
        each.received(memoryview(b"1\r\na\r\n"))
        taken.put_nowait(None)
        await until(lambda: not each._current.held)
        assert transport.resumes == 3


async def test_framing_without_end_is_refused_though_the_application_takes_nothing():
    gate, app = asyncio.Event(), Recorder()

    async def late(scope, receive, send):
        await gate.wait()
        await app(scope, receive, send)

    async with connected(late) as (each, transport):
        each.received(memoryview(chunked(b"abc") + b"1;"))
        await while_others_run()
        for _ in range(connection.MAX_HEAD // 1000 + 1):
            each.received(memoryview(b"a" * 1000))
        gate.set()
        await until(lambda: each._current is None)
        assert (app.bodies, app.broken) == ([b"abc"], [True])
        assert (transport.closed, transport.ended) == (False, True)


async def test_a_client_that_ends_its_side_has_time_for_the_rest_and_its_application_hears_of_it():
    told = []

    async def app(scope, receive, send):
        await body_of(receive)
        told.append((await receive())["type"])

    async with connected(app) as (each, transport):
        each.received(memoryview(get()))
        await while_others_run()
        transport.left = 100
        each.eof_received()
        assert each.deadline < NEVER + asyncio.get_running_loop().time()
        await until(lambda: told)
        assert told == ["http.disconnect"]
        each.deadline = NEVER
        transport.left = 60
        each.expire(1000.0)
        assert not transport.closed
        each.connection_lost(None)
        assert each.deadline == math.inf


async def test_nothing_is_awaited_of_a_client_while_its_request_is_under_way():
    gate = asyncio.Event()

    async def app(scope, receive, send):
        await gate.wait()
        await reply(send)

    part, rest = get()[:9], get()[9:]
    async with connected(app) as (each, _):
        for data in (get(), rest):
            assert each.deadline < NEVER + asyncio.get_running_loop().time()
            each.received(memoryview(data))
            assert each.deadline == math.inf
            each.received(memoryview(part))
            assert each.deadline == math.inf
            gate.set()
            await until(lambda: each._current is None)
            gate.clear()


@pytest.mark.parametrize("further", [b"", b"GET / HT"], ids=["nothing", "a part"])
async def test_what_is_awaited_after_an_answer(further):
    async with connected(Recorder()) as (each, _):
        each.received(memoryview(get()))
        if further:
            each.received(memoryview(further))
        await until(lambda: each._current is None)
        due = each.deadline - asyncio.get_running_loop().time()
        assert (due > connection.HEAD_SECONDS) == (not further)
        assert due <= connection.IDLE_SECONDS
        if not further:
            each.received(memoryview(b"GET / HT"))
            assert each.deadline - asyncio.get_running_loop().time() <= connection.HEAD_SECONDS


async def test_an_answer_waits_for_the_client_until_it_takes_more_or_leaves():
    sent = []

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for number in range(3):
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            sent.append(number)

    async with connected(app) as (each, _):
        each.received(memoryview(get()))
        each.pause_writing()
        await while_others_run()
        assert sent == []
        each.resume_writing()
        assert each.deadline == math.inf  # Nothing is awaited of the client while the application works.
        each.pause_writing()
        await while_others_run()
        assert sent == []  # It took some, and has too much again.
        each.connection_lost(None)
        await until(lambda: sent == [0, 1, 2])
        await until(lambda: each._current is None)


async def test_who_no_longer_waits_for_the_client_leaves_others_waiting():
    async with connected(Recorder()) as (each, _):
        each.pause_writing()
        first, second = asyncio.ensure_future(each.drain()), asyncio.ensure_future(each.drain())
        await while_others_run()
        first.cancel()
        await while_others_run()
        assert not second.done()
        each.resume_writing()
        await second
