"""What goes to the client: whole or in pieces, after faults of the application, and to clients that do not take it."""

import asyncio
import socket

import pytest
import structlog

from agentworld.http_server import connection
from tests.http_server.serving import OUTER, Recorder, answers, body_of, chunked, get, post, reply, serving, until
from tests.http_server.test_requests import given_by

CLOSE = b"Connection: close"


def sending(*messages):
    async def app(scope, receive, send):
        await body_of(receive)
        for message in messages:
            await send(message)

    return app


def start(*headers, status=200):
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def piece(data=b"", more=False):
    return {"type": "http.response.body", "body": data, "more_body": more}


def length(number):
    return (b"content-length", b"%d" % number)


@pytest.mark.parametrize("declared", [[], [length(5)]], ids=["streamed", "declared"])
async def test_pieces_arrive_as_the_body(declared):
    app = sending(start(*declared), piece(b"he", more=True), piece(b"", more=True), piece(b"llo"))
    async with serving(app) as server:
        got = answers(await server.ask(get() + get(b"/", CLOSE)))
        old = await server.ask(get(version=b"1.0"))
    assert [(status, body) for status, _, body in got] == [(200, b"hello")] * 2
    assert b"connection" not in got[0][1]
    assert got[1][1][b"connection"] == b"close"
    assert old.endswith(b"\r\n\r\nhello")
    assert b"transfer-encoding" not in old


async def test_small_pieces_wait_for_nothing():
    async with serving(Recorder()) as server:
        client = await server.client(get())
        await client.answer()
        (each,) = server.listener.connections
        accepted = each._transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("status", [204, 304])
async def test_statuses_without_a_body(status):
    async with serving(sending(start(length(3), status=status), piece(b"abc"))) as server:
        data = await server.ask(get() + get(b"/", CLOSE))
    assert data.count(b"HTTP/1.1 %d" % status) == 2
    assert data.endswith(b"\r\n\r\n")
    assert b"abc" not in data
    assert (b"content-length" in data) == (status == 304)


async def test_an_answer_to_head_has_no_body():
    async with serving(sending(start(length(3)), piece(b"abc"))) as server:
        data = await server.ask(b"HEAD / HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert b"content-length: 3\r\n" in data
    assert data.endswith(b"\r\n\r\n")


async def test_a_connection_of_http_1_0_is_kept_where_asked():
    async with serving(Recorder()) as server:
        client = await server.client(get(b"/", b"Connection: keep-alive", version=b"1.0"))
        assert (await client.answer())[1][b"connection"] == b"keep-alive"
        client.send(get(version=b"1.0"))
        assert (await client.answer())[1][b"connection"] == b"close"
        assert await client.rest() == b""


async def test_requests_sent_ahead_are_answered_in_order_up_to_a_number():
    app = Recorder()
    number = connection.WAITING + 1
    async with serving(app) as server:
        got = answers(await server.ask(b"".join(post(b"%d" % each) for each in range(number + 5))))
    assert [body for _, _, body in got] == [b"%d" % each for each in range(number)]
    assert [b"connection" in headers for _, headers, _ in got] == [False] * (number - 1) + [True]


async def test_bodies_sent_ahead_are_bounded():
    _, bodies, _, written = await given_by([post(bytes(connection.HELD // 2 + 1)) * 6])
    assert len(bodies) == 4
    assert b"connection: close" in written


async def test_a_client_that_waits_to_send_its_body_is_told_once():
    async def app(scope, receive, send):
        first = asyncio.ensure_future(receive())
        await asyncio.sleep(0)
        first.cancel()
        body, _ = await body_of(receive)
        await reply(send, body=body)

    async with serving(app) as server:
        client = await server.client(b"POST / HTTP/1.1\r\nExpect: 100-Continue \r\nContent-Length: 2\r\n\r\n")
        assert await client.reader.readexactly(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(b"ab")
        assert (await client.answer())[2] == b"ab"


async def test_http_1_0_is_not_told_to_continue():
    async with serving(Recorder()) as server:
        client = await server.client(get(b"/", b"Expect: 100-continue", b"Content-Length: 2", version=b"1.0"))
        await until(lambda: any(each._current for each in server.listener.connections))
        client.send(b"ab")
        assert (await client.rest()).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "sent",
    [get(b"/", b"Connection: upgrade", b"Upgrade: h2c"), b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n"],
    ids=["upgrade", "CONNECT"],
)
async def test_what_asks_for_another_protocol_is_answered_and_ends(sent):
    app = Recorder()
    async with serving(app) as server:
        ((status, headers, _),) = answers(await server.ask(sent + get(b"/next")))
    assert (status, headers[b"connection"], len(app.scopes)) == (200, b"close", 1)


async def test_a_refusal_reaches_a_client_that_still_sends():
    async def app(scope, receive, send):
        await reply(send, 413, b"too large")

    async with serving(app) as server:
        client = await server.client(post(b"")[:-2].replace(b"Length: 0", b"Length: 100000000") + b"\r\n")
        for _ in range(20):
            client.send(bytes(100_000))
        ((status, headers, body),) = answers(await client.rest())
    assert (status, headers[b"connection"], body) == (413, b"close", b"too large")


async def test_what_a_refused_client_still_sends_is_taken_from_it():
    gate = asyncio.Event()

    async def app(scope, receive, send):
        await gate.wait()
        await reply(send, 413)

    async with serving(app) as server:
        client = await server.client(post(bytes(8_000_000)))
        await until(lambda: any(not each._reading for each in server.listener.connections))
        gate.set()
        async with asyncio.timeout(OUTER):
            await client.writer.drain()
        assert (await client.answer())[0] == 413


async def test_a_lingering_client_is_cut_off(monkeypatch):
    monkeypatch.setattr(connection, "LINGER_SECONDS", 0.0)
    monkeypatch.setattr("agentworld.http_server.listener.SWEEP_SECONDS", 0.01)

    async def app(scope, receive, send):
        await reply(send, 413)

    async with serving(app) as server:
        client = await server.client(chunked(b"a"))
        await client.rest()
        await until(lambda: not server.listener.connections)


async def test_no_more_of_a_body_is_read_than_the_application_takes():
    gate = asyncio.Event()

    async def app(scope, receive, send):
        await gate.wait()
        body, _broken = await body_of(receive)
        await reply(send, body=b"%d" % len(body))

    async with serving(app) as server:
        client = await server.client(post(bytes(8_000_000), CLOSE))
        await until(lambda: any(not each._reading for each in server.listener.connections))
        (each,) = server.listener.connections
        assert connection.HELD < each._current.held <= connection.HELD + 256 * 1024
        gate.set()
        assert answers(await client.rest())[0][2] == b"8000000"


FAULTS = {
    "nothing": [],
    "no body": [start(length(0))],
    "less": [start(length(5)), piece(b"hell")],
    "more": [start(length(5)), piece(b"hello!")],
    "body first": [piece(b"x")],
    "two heads": [start(length(1)), start(length(1))],
    "line break": [start((b"x", b"a\r\nb: c"))],
    "LF": [start((b"x", b"a\nb"))],
    "CR": [start((b"x", b"a\rb"))],
    "two lengths": [start(length(1), length(1))],
    "no length": [start((b"content-length", b"1_0"))],
    "status": [start(length(0), status=100)],
}


@pytest.mark.parametrize("messages", FAULTS.values(), ids=FAULTS)
async def test_an_application_that_fails_before_its_answer(messages):
    async with serving(sending(*messages)) as server:
        ((status, headers, body),) = answers(await server.ask(get() + get()))
        head = await server.ask(b"HEAD / HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert (status, headers[b"connection"]) == (500, b"close")
    assert b"The server failed on this request" in body
    assert head.endswith(b"\r\n\r\n")


async def failing(scope, receive, send):
    raise ValueError("what a user wrote")


def failing_scope(self, parser):
    raise KeyError("what a user wrote")


@pytest.mark.parametrize("place", ["application", "server"])
async def test_what_failed_is_logged_without_its_words(monkeypatch, place):
    if place == "server":
        monkeypatch.setattr(connection.Connection, "_scope", failing_scope)
    with structlog.testing.capture_logs() as lines:
        async with serving(failing) as server:
            ((status, headers, body),) = answers(await server.ask(get() + get()))
    assert (status, headers[b"connection"]) == (500, b"close")
    (line,) = lines
    assert line["log_level"] == "error"
    assert line["error"] == ("ValueError" if place == "application" else "KeyError")
    assert "in failing" in line["places"]
    assert "what a user wrote" not in body.decode() + repr({**line, "places": ""})


@pytest.mark.parametrize("more", [[], [start()], [piece(b"x" * 9)]], ids=["ends", "again", "more"])
async def test_an_answer_that_breaks_off_is_cut(more):
    async with serving(sending(start(length(5)), piece(b"he", more=True), *more)) as server:
        client = await server.client(get())
        data = b""
        with pytest.raises(ConnectionResetError):
            while data := await client.reader.read(100):
                assert not data.endswith(b"hello")
            raise ConnectionResetError  # Its end came without a reset.


async def test_a_second_answer_is_refused_and_the_first_stands():
    faults = []

    async def app(scope, receive, send):
        await reply(send, body=b"one")
        for message in (start(), piece()):
            try:
                await send(message)
            except RuntimeError as fault:
                faults.append(fault)

    async with serving(app) as server:
        got = answers(await server.ask(get() + get(b"/", CLOSE)))
    assert [body for _, _, body in got] == [b"one", b"one"]
    assert len(faults) == 4


async def test_a_cancelled_application_is_answered_for():
    async def app(scope, receive, send):
        raise asyncio.CancelledError

    async with serving(app) as server:
        assert (await server.ask(get())).startswith(b"HTTP/1.1 500 ")


async def test_a_client_that_leaves_is_told_of_and_sends_succeed():
    told, begun = [], asyncio.Event()

    async def app(scope, receive, send):
        await body_of(receive)
        begun.set()
        told.append((await receive())["type"])
        await send(start())
        await send(piece(b"x" * 1_000_000, more=True))
        await send(piece())
        told.append("sent")

    async with serving(app) as server:
        client = await server.client(get() + get(b"/never"))
        await begun.wait()
        client.writer.transport.abort()
        await until(lambda: len(told) == 2)
        await until(lambda: not server.listener.connections)
    assert told == ["http.disconnect", "sent"]


@pytest.mark.parametrize("sent", [b"", b"GET / HT", get()], ids=["nothing", "a part", "an answer"])
async def test_who_is_slow_or_idle_is_cut_off(monkeypatch, sent):
    monkeypatch.setattr("agentworld.http_server.listener.SWEEP_SECONDS", 0.01)
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.05)
    monkeypatch.setattr(connection, "IDLE_SECONDS", 0.05)
    async with serving(Recorder()) as server:
        client = await server.client(sent)
        try:
            await client.rest()
        except ConnectionResetError:
            pass
        await until(lambda: not server.listener.connections)


@pytest.mark.parametrize("half_closed", [False, True])
async def test_who_reads_nothing_is_cut_off(monkeypatch, half_closed):
    monkeypatch.setattr("agentworld.http_server.listener.SWEEP_SECONDS", 0.01)
    sizes = []

    async def app(scope, receive, send):
        await send(start())
        for _ in range(400):
            await send(piece(bytes(60_000), more=True))
            sizes.append(each._transport.get_write_buffer_size())
        await send(piece())

    async with serving(app, stall_seconds=0.05) as server:
        client = await server.client()
        client.writer.transport.pause_reading()
        await until(lambda: server.listener.connections)
        (each,) = server.listener.connections
        client.send(get())
        await until(lambda: each.drained is not None or each not in server.listener.connections)
        if half_closed:
            client.writer.write_eof()
        await until(lambda: not server.listener.connections)
    assert max(sizes) < 300_000
