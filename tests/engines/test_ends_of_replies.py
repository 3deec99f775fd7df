"""Where a reply of an engine ends: at its last event, whatever becomes of the connection, and at some size."""

import asyncio
import socket
import struct

import pytest

from agentworld.engines import connection as module
from agentworld.engines.anthropic_reply import MessageReader, ends_message
from agentworld.engines.base import EngineBrokeError
from agentworld.engines.connection import Connection, is_done
from agentworld.engines.openai_wire import NO_KEY, body_reader
from agentworld.errors import EngineError
from tests.engines.test_http_client import asked, serving

SAID = b'data: {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"
MESSAGE = (
    b'data: {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "message_stop"}}\n\n'
    b'data: {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}\n\n'
)
STOP = b'data: {"type": "message_stop"}\n\n'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def reset(writer):
    """Cut the connection with no end."""
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


async def texts(connection, read, ends):
    async with connection.deltas("/x", {"stream": True}, read, ends=ends) as deltas:
        return [delta.text async for delta in deltas if delta.index >= 0 and delta.text]


@pytest.mark.parametrize("how", ["is reset", "stays open"])
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("api", ["openai", "anthropic"])
async def test_a_stream_that_told_its_end_is_whole_though_its_connection(how, together, api, monkeypatch):
    monkeypatch.setattr(module, "END_SECONDS", 0.01)
    said, end, ends, read, text = {
        "openai": (SAID, DONE, is_done, body_reader(NO_KEY, kind="chat", entries=False), "a"),
        "anthropic": (MESSAGE, STOP, ends_message, MessageReader(NO_KEY).read, "message_stop"),
    }[api]
    heard = asyncio.Event()
    cut = asyncio.Event()

    def listening(data):
        heard.set()
        return read(data)

    async def answer(reader, writer):
        await asked(reader)
        writer.write(HEAD + chunk(said + end) if together else HEAD + chunk(said) + chunk(end))
        await heard.wait()
        if how == "is reset":
            reset(writer)
        else:
            assert await reader.read() == b""
        cut.set()

    async with serving(answer) as client:
        connection = Connection(client.origin, None, 60.0)
        assert await texts(connection, listening, ends) == [text]
        async with asyncio.timeout(60):
            await cut.wait()
        await connection.close()


async def test_one_that_did_not_is_not():
    async def answer(reader, writer):
        await asked(reader)
        writer.write(HEAD + chunk(SAID))
        await writer.drain()
        reset(writer)

    async with serving(answer) as client:
        connection = Connection(client.origin, None, 60.0)
        with pytest.raises(EngineBrokeError):
            await texts(connection, body_reader(NO_KEY, kind="chat", entries=False), is_done)
        await connection.close()


async def test_a_connection_that_ends_its_body_after_that_serves_the_next_call():
    calls = []

    async def answer(reader, writer):
        number = len(calls)
        while True:
            await asked(reader)
            calls.append(number)
            writer.write(HEAD + chunk(SAID + DONE))
            await asyncio.sleep(0)
            writer.write(b"0\r\n\r\n")

    async with serving(answer) as client:
        connection = Connection(client.origin, None, 60.0)
        for _ in range(3):
            assert await texts(connection, body_reader(NO_KEY, kind="chat", entries=False), is_done) == ["a"]
        await connection.close()
    assert calls == [0, 0, 0]


async def endless(writer, head, piece):
    writer.write(head)
    while True:
        writer.write(piece)
        await writer.drain()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_reply_without_end_is_cut_off(stream, monkeypatch):
    monkeypatch.setattr(module, "MAX_REPLY_BYTES", 1_000_000)
    kind = b"text/event-stream" if stream else b"application/json"
    head = b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ntransfer-encoding: chunked\r\n\r\n" % kind

    async def answer(reader, writer):
        await asked(reader)
        await endless(writer, head, chunk(SAID if stream else b" " * 1000))

    async with serving(answer) as client:
        connection = Connection(client.origin, None, 60.0)
        with pytest.raises(EngineError, match="a reply of over 1000000 bytes"):
            async with connection.deltas("/x", {"stream": stream}, lambda data: []) as deltas:
                assert [delta async for delta in deltas if delta.index >= 0] == []
        if not stream:
            with pytest.raises(EngineError, match="a reply of over 1000000 bytes"):
                await connection.get("/v1/models", 60.0)
        await connection.close()


async def test_of_an_error_without_end_the_beginning_is_told(monkeypatch):
    monkeypatch.setattr(module, "MAX_ERROR_BYTES", 1_000)

    async def answer(reader, writer):
        await asked(reader)
        await endless(writer, b"HTTP/1.1 500 no\r\n\r\n", b"out of memory ")

    async with serving(answer) as client:
        connection = Connection(client.origin, None, 60.0)
        with pytest.raises(EngineError, match="status 500: out of memory"):
            await connection.post("/x", {})
        await connection.close()
