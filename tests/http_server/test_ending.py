"""The end of a listener, and what connections leave behind."""

import asyncio
import gc
import threading

import pytest

from agentworld.http_server.connection import Connection
from agentworld.http_server.exchange import Exchange
from agentworld.read_buffer import Reader
from tests.http_server.serving import OUTER, Recorder, answers, body_of, get, reply, serving, until
from tests.http_server.test_requests import Loose


async def test_what_is_under_way_is_answered_and_idle_connections_end():
    gate, begun = asyncio.Event(), asyncio.Event()

    async def app(scope, receive, send):
        if scope["path"] == "/slow":
            begun.set()
            await gate.wait()
        await reply(send)

    async with serving(app) as server:
        idle = await server.client(get())
        await idle.answer()
        slow = await server.client(get(b"/slow") + get(b"/ahead"))
        await begun.wait()
        ending = asyncio.ensure_future(server.listener.end())
        assert await idle.rest() == b""
        assert not ending.done()
        gate.set()
        ((status, headers, _),) = answers(await slow.rest())
        assert (status, headers[b"connection"]) == (200, b"close")
        slow.writer.close()
        async with asyncio.timeout(OUTER):
            await ending


async def test_nobody_is_taken_after_the_end():
    async with serving(Recorder()) as server:
        await server.listener.end()
        with pytest.raises(ConnectionRefusedError):
            await server.client()
        assert server.listener._sweeping.cancelled()


async def test_the_end_waits_for_a_connection_that_was_taken_while_the_last_one_ended():
    async with serving(Recorder()) as server:
        first, second = Connection(server.listener), Connection(server.listener)
        first.connection_made(Loose())
        ending = asyncio.ensure_future(server.listener.end())
        await asyncio.sleep(0)
        first.connection_lost(None)
        second.connection_made(Loose())
        for _ in range(3):
            await asyncio.sleep(0)
        assert not ending.done()
        second.connection_lost(None)
        async with asyncio.timeout(OUTER):
            await ending


async def test_an_answer_that_had_begun_is_the_last_on_its_connection():
    gate, paths = asyncio.Event(), []

    async def app(scope, receive, send):
        paths.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await gate.wait()
        await send({"type": "http.response.body", "body": b"whole"})

    async with serving(app) as server:
        client = await server.client(get(b"/begun") + get(b"/ahead"))
        await client.reader.readuntil(b"\r\n")
        ending = asyncio.ensure_future(server.listener.end())
        await asyncio.sleep(0)
        gate.set()
        assert b"whole" in await client.rest()
        async with asyncio.timeout(OUTER):
            await ending
    assert paths == ["/begun"]


async def test_a_connection_that_was_just_taken_does_not_hold_the_end():
    async with serving(Recorder()) as server:
        client = await server.client()
        server.listener.ending = True
        other = await server.client(get())
        try:
            assert await other.rest() == b""
        except ConnectionResetError:
            pass  # Its request was there already.
        client.writer.close()
        await until(lambda: len(server.listener.connections) == 0)


async def test_abort_tells_requests_and_cancels_those_that_go_on(monkeypatch):
    monkeypatch.setattr("agentworld.http_server.listener.ABORT_SECONDS", 0.05)
    told, begun = [], []

    async def app(scope, receive, send):
        begun.append(scope["path"])
        await body_of(receive)
        told.append((await receive())["type"])
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.append("cancelled")
            raise

    async with serving(app) as server:
        await server.client(get())
        await until(lambda: begun)
        async with asyncio.timeout(OUTER):
            await server.listener.abort()
        assert told == ["http.disconnect", "cancelled"]
        assert not server.listener.connections


def left():
    return [each for each in gc.get_objects() if type(each) in (Connection, Exchange)]


async def test_requests_and_connections_leave_nothing():
    async with serving(Recorder()) as server:
        client = await server.client(get())
        await client.answer()
        gc.collect()
        gc.disable()
        try:
            for _ in range(100):
                client.send(get() * 10)
                for _ in range(10):
                    await client.reader.readuntil(b"\r\n\r\n")
            assert sum(type(each) is Exchange for each in left()) == 0
            for _ in range(200):
                assert len(answers(await server.ask(get(b"/", b"Connection: close")))) == 1
            await until(lambda: len(server.listener.connections) == 1)
            assert len(left()) == 1
            assert len(asyncio.all_tasks()) == 1
        finally:
            gc.enable()


async def test_requests_that_were_sent_ahead_by_who_left_leave_nothing():
    gate = asyncio.Event()

    async def app(scope, receive, send):
        await gate.wait()

    async with serving(app) as server:
        gc.collect()
        gc.disable()
        try:
            client = await server.client(get() * 3)
            await until(lambda: any(each._waiting for each in server.listener.connections))
            client.writer.transport.abort()
            await until(lambda: not server.listener.connections)
            gate.set()
            await until(lambda: not left())
        finally:
            gc.enable()


def test_event_loops_of_two_threads_share_no_memory():
    views = []

    def make():
        first, second = Reader().get_buffer(-1), Reader().get_buffer(-1)
        assert first is second
        views.append(first)

    for thread in [threading.Thread(target=make) for _ in range(2)]:
        thread.start()
        thread.join()
    assert len(views) == 2
    assert views[0].obj is not views[1].obj
