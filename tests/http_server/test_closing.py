"""How a connection closes: at once, once what was sent has gone out, or once the client has read its answer."""

import asyncio
import math

import pytest

from agentworld.http_server import connection
from tests.http_server.serving import Recorder, body_of, chunked, get, reply, until
from tests.http_server.test_stalling import NEVER, begun_until, connected, while_others_run


@pytest.mark.parametrize("lingering", [False, True])
async def test_a_connection_that_ends_has_time_while_the_client_takes_something(lingering):
    async with connected(Recorder()) as (each, transport):
        transport.left = 100
        if lingering:
            each.received(memoryview(b"\0\r\n\r\n"))
        else:
            each.end()
        transport.left = 70
        each.expire(1000.0)
        assert (transport.aborted, each.deadline) == (False, 1050.0)
        transport.left = 0  # What is awaited now is its end.
        each.expire(2000.0)
        assert transport.aborted


async def test_a_client_that_takes_something_does_not_put_off_the_end_of_its_connection():
    gate = asyncio.Event()

    async def app(scope, receive, send):
        await gate.wait()

    async with connected(app) as (each, transport):
        each.received(memoryview(get()))
        each.pause_writing()
        each.eof_received()
        transport.closed = True  # As the event loop does.
        each.resume_writing()
        assert each.deadline < math.inf
        gate.set()
        await until(lambda: each._current is None)
    async with connected(app) as (each, _):
        each.received(memoryview(b"\0\r\n\r\n"))
        each.pause_writing()
        each.resume_writing()
        assert each.deadline < math.inf


async def test_what_was_sent_still_goes_to_a_client_that_ended_its_side():
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await body_of(receive)

    async with connected(app) as (each, transport):
        each.received(memoryview(chunked(b"a")))
        await until(lambda: transport.written)
        each.eof_received()
        transport.closed = True  # As the event loop does.
        await until(lambda: each._current is None)
        assert (transport.aborted, transport.ended) == (False, False)


async def test_an_application_that_does_not_wait_for_the_client_is_cut_off():
    paths = []

    async def app(scope, receive, send):
        paths.append(scope["path"])
        each.pause_writing()
        assert not send.__self__.answer(200, [(b"content-length", b"2")], b"ok")

    async with connected(app) as (each, transport):
        each.received(memoryview(get(b"/first") + get(b"/second")))
        await until(lambda: each._current is None)
        await while_others_run()
        assert (transport.aborted, paths) == (True, ["/first"])


async def test_who_sends_more_while_the_listener_ends_does_not_lose_its_answer():
    gate = asyncio.Event()
    async with connected(begun_until(gate)) as (each, transport):
        each.received(memoryview(get()))
        await while_others_run()
        each._listener.ending = True
        each.end()
        each.received(memoryview(get(b"/more")))
        gate.set()
        await until(lambda: each._current is None)
        assert (transport.closed, transport.ended) == (False, True)


async def test_who_sends_more_ahead_than_is_served_does_not_lose_its_answers():
    """Its connection is not closed before it has read them: what still comes would be answered with a reset."""
    app = Recorder()
    async with connected(app) as (each, transport):
        each.received(memoryview(get() * (connection.WAITING + 3)))
        await until(lambda: each._current is None)
        assert len(app.scopes) == connection.WAITING + 1
        assert (transport.closed, transport.ended) == (False, True)


async def test_nothing_is_written_for_a_client_that_has_left():
    async with connected(Recorder()) as (each, transport):
        each.received(memoryview(get()))
        transport.closed = True
        await until(lambda: each._current is None)
        assert transport.written == b""


@pytest.mark.parametrize(
    "asked", [get(), get(b"/", b"Connection: close"), get(version=b"1.0")], ids=["no", "yes", "1.0"]
)
@pytest.mark.parametrize("failing", [False, True])
async def test_who_did_not_ask_for_the_end_and_is_told_of_it_has_time_to_read_that(asked, failing):
    """What it has sent meanwhile would be answered with a reset, which takes from it what it has not read."""

    async def app(scope, receive, send):
        if failing:
            raise ValueError
        await reply(send, headers=[(b"Connection", b"close")])

    async with connected(app) as (each, transport):
        each.received(memoryview(asked))
        await until(lambda: each._current is None)
        lingering = asked == get()
        assert (transport.closed, transport.ended) == (not lingering, lingering)


@pytest.mark.parametrize("streamed", [False, True])
async def test_who_is_told_of_the_end_of_the_listener_has_time_to_read_that(streamed):
    gate = asyncio.Event()

    async def app(scope, receive, send):
        if streamed:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        await gate.wait()
        if streamed:
            await send({"type": "http.response.body", "body": b"whole"})
        else:
            await reply(send, body=b"whole")

    async with connected(app) as (each, transport):
        each.received(memoryview(get()))
        await while_others_run()
        each._listener.ending = True
        each.end()
        gate.set()
        await until(lambda: each._current is None)
        assert (transport.closed, transport.ended) == (streamed, not streamed)


@pytest.mark.parametrize("unsent", [0, 100])
async def test_who_has_to_read_more_has_more_time(unsent):
    async with connected(Recorder(), stall_seconds=NEVER) as (each, transport):
        transport.left = unsent
        each.received(memoryview(b"\0\r\n\r\n"))
        due = each.deadline - asyncio.get_running_loop().time()
        assert (due > connection.LINGER_SECONDS) == bool(unsent)
        assert due <= NEVER


@pytest.mark.parametrize("answered", [False, True])
async def test_a_client_that_resets_the_connection_before_its_answer_ends(monkeypatch, answered):
    def write_eof():
        raise OSError(107, "Transport endpoint is not connected")

    async with connected(Recorder()) as (each, transport):
        monkeypatch.setattr(transport, "write_eof", write_eof)
        each.received(memoryview((get() if answered else b"") + b"\0\r\n\r\n"))
        await until(lambda: each._current is None)
        assert transport.aborted


async def test_who_asked_for_the_end_and_still_sends_a_body_has_time_to_read_its_answer():
    async def app(scope, receive, send):
        await reply(send, 413)

    async with connected(app) as (each, transport):
        each.received(memoryview(chunked(b"a", headers=[b"Connection: close"])))
        await until(lambda: each._current is None)
        assert (transport.closed, transport.ended) == (False, True)
