"""The HTTP client: bodies of every framing under every split, connections kept and cut, and what it says of faults."""

import asyncio
import socket
from contextlib import asynccontextmanager

import pytest

from agentworld.engines.broken import BrokenError, ConnectError
from agentworld.engines.connection import Connection
from agentworld.engines.headers import HeaderError
from agentworld.engines.http_client import HttpClient
from agentworld.engines.http_link import HELD_BYTES
from agentworld.engines.openai_wire import NO_KEY, body_reader
from agentworld.errors import ConfigError, InvalidRequestError

LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Kind:  a b \r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nhel\r\n02\r\nlo\r\n0\r\nTrailer: x\r\n\r\n"
EARLY = b"HTTP/1.1 100 Continue\r\n\r\n" + LENGTH
TO_THE_END = b"HTTP/1.0 200 OK\r\n\r\nhello"


@asynccontextmanager
async def serving(answer):
    """A client of a server whose connections `answer(reader, writer)` serves."""
    running = set()

    async def serve(reader, writer):
        task = asyncio.current_task()
        running.add(task)
        try:
            await answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            running.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    client = HttpClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", connect_seconds=60, idle_seconds=60)
    try:
        yield client
    finally:
        await client.close()
        server.close()
        for task in list(running):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def asked(reader):
    """One request: its head and body."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")), 0)
    return head, await reader.readexactly(length)


async def until(condition):
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def sending(*pieces, then_close=False):
    """Answers every request with these pieces, one write each."""

    async def answer(reader, writer):
        while True:
            await asked(reader)
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            if then_close:
                return

    return answer


def post(client, body=b"{}", seconds=100.0, stale=0.0):
    return client.request("POST", "/v1/x", {"content-type": "application/json"}, body, seconds, stale)


@pytest.mark.parametrize(
    "reply", [LENGTH, CHUNKED, EARLY, TO_THE_END], ids=["length", "chunked", "early", "to-the-end"]
)
async def test_bodies_are_whole_under_every_split(reply):
    for cut in range(1, len(reply)):
        async with serving(sending(reply[:cut], reply[cut:], then_close=reply is TO_THE_END)) as client:
            answer = await post(client)
            assert (answer.status, await answer.read()) == (200, b"hello")
            assert answer.ended
            answer.close()


async def test_one_byte_at_a_time():
    async with serving(sending(*(bytes([byte]) for byte in CHUNKED))) as client:
        assert await (await post(client)).read() == b"hello"


async def test_what_is_sent():
    seen = []

    async def answer(reader, writer):
        seen.append(await asked(reader))
        writer.write(LENGTH)

    async with serving(answer) as client:
        answer = await post(client, b'{"a":1}')
        assert answer.headers["x-kind"] == "a b"
        head, body = seen[0]
        assert head.startswith(b"POST /v1/x HTTP/1.1\r\nhost: 127.0.0.1:")
        assert b"\r\naccept-encoding: identity\r\ncontent-type: application/json\r\ncontent-length: 7\r\n\r\n" in head
        assert body == b'{"a":1}'


@pytest.mark.parametrize(
    ("reply", "kept"),
    [
        (LENGTH, True),
        (CHUNKED, True),
        (b"HTTP/1.1 204 No\r\n\r\n", True),
        (LENGTH.replace(b"X-Kind:  a b ", b"Connection: close"), False),
        (LENGTH.replace(b"1.1", b"1.0"), False),
        (LENGTH + b"more", False),
    ],
)
async def test_connections_are_kept_where_the_reply_allows_it(reply, kept):
    connections = []

    async def answer(reader, writer):
        connections.append(writer)
        await sending(reply)(reader, writer)

    async with serving(answer) as client:
        for _ in range(3):
            answer_ = await post(client)
            await answer_.read()
            answer_.close()
        assert len(connections) == (1 if kept else 3)


async def test_a_reply_that_was_left_ends_its_connection():
    ended = asyncio.Event()

    async def answer(reader, writer):
        await asked(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        await reader.read()
        ended.set()

    async with serving(answer) as client:
        left = await post(client)
        async for piece in left.pieces():
            assert piece == b"a"
            break
        left.close()
        async with asyncio.timeout(20):
            await ended.wait()


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel",
        CHUNKED[:-4],
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5_000 + b"\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 3\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-3\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 300_000,
    ],
)
async def test_what_is_no_whole_reply_is_broken(reply):
    async with serving(sending(reply, then_close=True)) as client:
        with pytest.raises(BrokenError):
            await (await post(client)).read()


def counting(seen, *behaviours):
    """Serves connection after connection, each as its behaviour says, the last for all others: how often it answers
    before it takes one more request and does something else. `seen`: the connections, one a request.
    """
    connections = []

    async def answer(reader, writer):
        connections.append(writer)
        number = len(connections) - 1
        answers, last_words = behaviours[min(number, len(behaviours) - 1)]
        for _ in range(answers):
            await asked(reader)
            seen.append(number)
            writer.write(LENGTH)
        await asked(reader)
        seen.append(number)
        writer.write(last_words)

    return answer


async def read(answer):
    said = await answer.read()
    answer.close()
    return said


async def test_a_kept_connection_that_was_closed_is_no_fault():
    seen = []
    async with serving(counting(seen, (1, b""), (9, b""))) as client:
        assert await read(await post(client)) == b"hello"
        # The kept connection is closed before a byte of its answer: it may have been kept too long.
        assert await read(await post(client, stale=20.0)) == b"hello"
        assert seen == [0, 0, 1]


@pytest.mark.parametrize(
    ("behaviours", "kept", "stale", "asked_on"),
    [
        pytest.param([(0, b"")], False, 20.0, [0], id="a new connection"),
        pytest.param([(1, b"H")], True, 20.0, [0, 0], id="a byte of a reply"),
        pytest.param([(1, b"SSH-2.0-OpenSSH\r\n\r\n")], True, 20.0, [0, 0], id="another protocol"),
        pytest.param([(1, b"")], True, 0.0, [0, 0], id="after a while"),
        pytest.param([(1, b""), (0, b"")], True, 20.0, [0, 0, 1], id="twice"),
    ],
)
async def test_what_may_have_been_taken_is_not_sent_again(behaviours, kept, stale, asked_on):
    seen = []
    async with serving(counting(seen, *behaviours)) as client:
        if kept:
            assert await read(await post(client)) == b"hello"
        with pytest.raises(BrokenError):
            await post(client, stale=stale)
        assert seen == asked_on


async def test_time_is_for_the_whole_reply():
    async def answer(reader, writer):
        await asked(reader)
        writer.write(LENGTH[:-2])
        await reader.read()

    async with serving(answer) as client:
        answer_ = await post(client, seconds=0.05)
        with pytest.raises(TimeoutError):
            await answer_.read()


async def test_nobody_there():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # Nobody listens there, and nobody else can.
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ConnectError):
            await post(HttpClient(url, connect_seconds=60, idle_seconds=60))


@pytest.mark.parametrize("value", ["a\r\nevil: 1", "a\nevil: 1", "a\rb", "a\0b"])
async def test_headers_cannot_be_smuggled(value):
    client = HttpClient("http://127.0.0.1:9", connect_seconds=60, idle_seconds=60)
    with pytest.raises(HeaderError, match="line end"):
        await client.request("GET", "/", {"x": value}, b"", 5, 0)
    with pytest.raises(HeaderError, match="line end"):
        await client.request("GET", "/", {value: "x"}, b"", 5, 0)


async def test_headers_that_no_byte_says_are_an_error_and_nothing_is_sent():
    seen = []

    async def answer(reader, writer):
        seen.append(await asked(reader))
        writer.write(LENGTH)

    async with serving(answer) as client:
        with pytest.raises(HeaderError, match=r"holds U\+20AC") as caught:
            await client.request("POST", "/", {"x-kind": "5 \u20ac"}, b"{}", 5, 0)
        assert caught.value.name == "x-kind"
        assert client._links == set()
        await client.request("POST", "/", {"x-kind": "caf\u00e9"}, b"{}", 5, 0)
        assert b"\r\nx-kind: caf\xe9\r\n" in seen[0][0]
        # What a caller sends is its own fault; a key of ours is told of at the start.
        connection = Connection(client.origin, None, 20.0)
        with pytest.raises(InvalidRequestError, match="'anthropic-beta' cannot be sent") as refused:
            await connection.get("/v1/models", headers={"anthropic-beta": "\ufffd"})
        assert refused.value.path == "anthropic-beta"
        await connection.close()
    for key in ("k\u20ac", "k\n"):
        with pytest.raises(ConfigError, match="cannot be sent") as wrong:
            Connection("http://127.0.0.1:9", key, 20.0)
        assert wrong.value.path == "models.api_key"
        assert key not in str(wrong.value)


async def test_a_slow_reader_holds_up_the_sender():
    size = 64 * HELD_BYTES
    written = asyncio.Event()

    async def answer(reader, writer):
        await asked(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // HELD_BYTES):
            writer.write(b"a" * HELD_BYTES)
            await writer.drain()
        written.set()

    async with serving(answer) as client:
        reply = await post(client)
        pieces = reply.pieces()
        got = len(await anext(pieces))
        assert not written.is_set()
        async for piece in pieces:
            got += len(piece)
        assert got == size
        assert written.is_set()


async def test_pieces_say_which_came_together():
    def event(text):
        return b'data: {"choices": [{"index": 0, "delta": {"content": "%b"}}]}\n\n' % text

    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    # What says nothing (here a comment and the end) does not leave a piece waiting.
    pieces = [head + event(b"a") + event(b"b"), event(b"c") + b": ping\n\n", event(b"d") + b"data: [DONE]\n\n"]
    seen = asyncio.Event()

    async def answer(reader, writer):
        await asked(reader)
        for piece in pieces:
            seen.clear()
            writer.write(piece)
            await seen.wait()

    async with serving(answer) as client:
        connection = Connection(client.origin, None, 20.0)
        found = []
        reader = body_reader(NO_KEY, kind="chat", entries=False)
        async with connection.deltas("/v1/chat/completions", {"stream": True}, reader) as deltas:
            async for delta in deltas:
                found.append((delta.text, delta.more))
                if not delta.more:
                    seen.set()
        await connection.close()
    assert found == [("a", True), ("b", False), ("c", False), ("d", False)]


async def test_a_piece_does_not_wait_for_events_that_say_nothing():
    both = b'data: {"choices": [{"index": 0, "delta": {"content": "a"}}]}\n\ndata: nothing\n\n'
    general = body_reader(NO_KEY, kind="chat", entries=False)

    async def answer(reader, writer):
        await asked(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + both)

    async with serving(answer) as client:
        connection = Connection(client.origin, None, 20.0)
        found = []
        async with connection.deltas(
            "/x", {"stream": True}, lambda data: [] if data == b"nothing" else general(data)
        ) as deltas:
            async for delta in deltas:
                found.append((delta.index, delta.text, delta.more))
        await connection.close()
    assert found == [(0, "a", True), (-1, "", False)]


async def test_what_comes_behind_a_whole_reply_leaves_it_whole_and_ends_the_connection():
    go_on = asyncio.Event()

    async def answer_and_more(reader, writer):
        await asked(reader)
        writer.write(LENGTH)
        await go_on.wait()
        writer.write(b"more")
        await reader.read()

    async with serving(answer_and_more) as client:
        answer = await post(client)
        await until(lambda: answer._link.ended)
        go_on.set()
        await until(lambda: not client._links)
        assert await answer.read() == b"hello"
        answer.close()
        assert client._idle == []


async def test_a_connection_that_is_lost_at_once_is_forgotten(monkeypatch):
    async with serving(sending(LENGTH)) as client:
        loop = asyncio.get_running_loop()
        connect = loop.create_connection

        async def losing(*arguments, **more):
            transport, link = await connect(*arguments, **more)
            transport.abort()
            await until(lambda: link._transport is None)
            return transport, link

        monkeypatch.setattr(loop, "create_connection", losing)
        with pytest.raises(BrokenError):
            await post(client)
        assert client._links == set()
