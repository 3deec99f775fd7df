"""A request and its answer as the application has them, in pieces and as a whole."""

import asyncio

import pytest

from tests.http_server.serving import Recorder, answers, body_of, chunked, get, post, reply, serving, until
from tests.http_server.test_stalling import begun_until, connected, while_others_run


async def test_pieces_that_come_at_once_are_all_told():
    app = Recorder()
    async with connected(app) as (each, _):
        each.received(memoryview(chunked()))
        await while_others_run()
        for piece in (b"1\r\na\r\n", b"1\r\nb\r\n", b"0\r\n\r\n"):
            each.received(memoryview(piece))
        await until(lambda: app.bodies)
    assert app.bodies == [b"ab"]


async def test_after_its_answer_a_request_hears_that_its_client_has_left():
    told = []

    async def app(scope, receive, send):
        early = asyncio.ensure_future(receive_after(receive))
        await while_others_run()
        await reply(send)
        told.append((await receive())["type"])
        told.append((await early)["type"])

    async def receive_after(receive):
        await body_of(receive)
        return await receive()

    async with connected(app) as (each, _):
        each.received(memoryview(get()))
        await until(lambda: len(told) == 2)
    assert told == ["http.disconnect"] * 2


async def test_nobody_is_told_to_continue_once_the_answer_has_begun():
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        body, _ = await body_of(receive)
        await send({"type": "http.response.body", "body": body})

    async with connected(app) as (each, transport):
        each.received(memoryview(post(b"", b"Expect: 100-continue").replace(b"Length: 0", b"Length: 2")))
        await while_others_run()
        each.received(memoryview(b"ab"))
        await until(lambda: each._current is None)
        assert b"100 Continue" not in transport.written
        assert b"\r\nab\r\n" in transport.written


async def test_a_body_as_a_whole():
    got = []

    async def app(scope, receive, send):
        exchange = send.__self__
        if scope["path"] == "/pieces":
            got.append(exchange.whole())  # Not all is there.
            message = await receive()
            got.append(message["body"])
            await until(lambda: exchange.complete)
            got.append(exchange.whole())
            got.append(exchange.whole())
        else:
            got.append(exchange.whole())
            got.append(exchange.whole())
            waiting = asyncio.ensure_future(receive())
            await while_others_run()
            assert not waiting.done()  # The body is not told again.
            got.append(exchange.answer(200, [(b"content-length", b"2")], b"ok"))
            got.append((await waiting)["type"])
            got.append(exchange._waiting)

    async with connected(app) as (each, transport):
        each.received(memoryview(post(b"ab")))
        await until(lambda: len(got) == 5)
        assert got == [b"ab", None, True, "http.disconnect", []]
        assert answers(transport.written)[0][2] == b"ok"
        got.clear()
        each.received(memoryview(post(b"abcd", path=b"/pieces")[:-2]))
        await until(lambda: len(got) == 2)
        each.received(memoryview(b"cd"))
        await until(lambda: each._current is None)
    assert got == [None, b"ab", b"cd", None]


async def test_a_body_that_came_in_pieces_is_not_had_as_a_whole():
    got = []

    async def app(scope, receive, send):
        await until(lambda: send.__self__.complete)
        got.append(send.__self__.whole())
        got.append((await receive())["body"])
        await reply(send)

    async with connected(app) as (each, _):
        each.received(memoryview(chunked(b"ab", b"cd") + b"0\r\n\r\n"))
        await until(lambda: each._current is None)
    assert got == [None, b"abcd"]


async def test_a_whole_answer_says_whether_the_client_takes_it():
    got = []

    async def app(scope, receive, send):
        each.pause_writing()
        got.append(send.__self__.answer(200, [(b"content-length", b"2")], b"ok"))
        await send.__self__.drain()

    async with connected(app) as (each, _):
        each.received(memoryview(get()))
        await until(lambda: got)
        each.resume_writing()
        await until(lambda: each._current is None)
    assert got == [False]


@pytest.mark.parametrize("headers", [[], [(b"content-length", b"5")]], ids=["streamed", "declared"])
async def test_an_application_that_fails_within_its_answer(headers):
    """Nothing may come after it that a client could take for its rest."""
    seen = []

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        seen.append(transport.written)
        if headers:
            await send({"type": "http.response.body", "body": b"ab", "more_body": True})
        raise ValueError

    async with connected(app) as (each, transport):
        each.received(memoryview(get()))
        await until(lambda: each._current is None)
        assert transport.written.startswith(b"HTTP/1.1 200 ")
        assert transport.written.endswith(b"ab" if headers else b"\r\n\r\n")
        assert (transport.closed, transport.ended) == (True, False)
    assert bool(seen[0]) == (not headers)  # Whoever waits for a stream sees at once that it begins.


async def test_an_answer_that_had_begun_before_garbage_came_is_read_to_its_end():
    gate = asyncio.Event()
    async with connected(begun_until(gate)) as (each, transport):
        each.received(memoryview(get()))
        await while_others_run()
        each.received(memoryview(b"\0\0\0\r\n\r\n"))
        gate.set()
        await until(lambda: each._current is None)
        assert [(status, body[:5]) for status, _, body in answers(transport.written)] == [
            (200, b"whole"),
            (400, b'{"err'),
        ]
        assert (transport.closed, transport.ended) == (False, True)


async def test_what_is_no_request_is_closed_so_that_the_answer_is_read():
    async with connected(Recorder()) as (each, transport):
        each.received(memoryview(b"\0\0\0\r\n\r\n"))
        assert (transport.closed, transport.ended) == (False, True)
        assert answers(transport.written)[0][0] == 400


@pytest.mark.parametrize("sent", [b"OPTIONS * HTTP/1.1\r\n", b"CONNECT x:1 HTTP/1.1\r\n"], ids=["*", "CONNECT"])
async def test_targets_that_are_no_paths_are_told_as_they_are(sent):
    app = Recorder()
    async with serving(app) as server:
        await server.ask(sent + b"Host: x\r\nConnection: close\r\n\r\n")
    assert app.scopes[0]["raw_path"] == sent.split()[1]
