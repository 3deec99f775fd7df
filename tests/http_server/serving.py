"""A listener in the test's event loop, plain sockets for clients, and applications that say what they were given."""

import asyncio
from contextlib import asynccontextmanager

import httptools

from agentworld.http_server.listener import Listener
from agentworld.http_server.running import bound

OUTER = 60.0
"""Seconds that nothing takes unless it hangs."""


class Client:
    """One connection."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    def send(self, *pieces):
        for piece in pieces:
            self.writer.write(piece)

    async def rest(self):
        """All that comes until the connection ends."""
        async with asyncio.timeout(OUTER):
            return await self.reader.read()

    async def answer(self, method="GET"):
        """The next answer."""
        got = Answers(method)
        async with asyncio.timeout(OUTER):
            while not got.answers:
                piece = await self.reader.read(1)
                assert piece, "the connection ended before the answer"
                got.feed(piece)
        return got.answers[0]


class Answers:
    """What the parser for clients makes of what comes: (status, headers, body) of each."""

    def __init__(self, method="GET"):
        self.answers = []
        self._parser = httptools.HttpResponseParser(self)
        self._bodiless = method == "HEAD"

    def feed(self, data):
        self._parser.feed_data(data)

    def on_message_begin(self):
        self._headers, self._body = [], b""

    def on_header(self, name, value):
        self._headers.append((name, value))

    def on_headers_complete(self):
        if self._bodiless:  # The parser does not know of what it was asked.
            self.answers.append((self._parser.get_status_code(), dict(self._headers), b""))

    def on_body(self, piece):
        self._body += piece

    def on_message_complete(self):
        if not self._bodiless:
            self.answers.append((self._parser.get_status_code(), dict(self._headers), self._body))


def answers(data):
    """The answers in what came until the end of a connection."""
    got = Answers()
    got.feed(data)
    return got.answers


class Served:
    """A listener and how to reach it."""

    def __init__(self, listener, address):
        self.listener, self.address = listener, address
        self._clients = []

    async def client(self, *pieces):
        client = Client(*await asyncio.open_connection(*self.address))
        self._clients.append(client)
        client.send(*pieces)
        return client

    async def ask(self, *pieces):
        """All that comes until the connection ends."""
        return await (await self.client(*pieces)).rest()

    def close(self):
        for client in self._clients:
            client.writer.transport.abort()


@asynccontextmanager
async def serving(app, stall_seconds=OUTER):
    listener = Listener(app, stall_seconds)
    listening = bound("127.0.0.1", 0)
    await listener.begin(listening)
    served = Served(listener, listening.getsockname())
    try:
        yield served
    finally:
        served.close()
        async with asyncio.timeout(OUTER):
            listener.ending = True
            listener._server.close()
            await listener.abort()


async def until(condition):
    async with asyncio.timeout(OUTER):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def body_of(receive):
    """The whole body, and whether it broke off."""
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return body, True
        body += message["body"]
        if not message["more_body"]:
            return body, False


async def reply(send, status=200, body=b"", headers=()):
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [length, *headers]})
    await send({"type": "http.response.body", "body": body})


class Recorder:
    """Takes every request whole and answers with its body; keeps what it was given."""

    def __init__(self):
        self.scopes, self.bodies, self.broken = [], [], []
        self.calls = 0

    async def __call__(self, scope, receive, send):
        self.calls += 1
        kept = {name: value for name, value in scope.items() if name != "client"}
        body, broken = await body_of(receive)
        self.scopes.append(kept)
        self.bodies.append(body)
        self.broken.append(broken)
        await reply(send, 400 if broken else 200, body)

    @property
    def paths(self):
        return [scope["path"] for scope in self.scopes]


def get(path=b"/", *headers, version=b"1.1"):
    return b"\r\n".join([b"GET %b HTTP/%b" % (path, version), b"Host: x", *headers, b"", b""])


def post(body=b"", *headers, path=b"/"):
    length = b"Content-Length: %d" % len(body)
    return b"\r\n".join([b"POST %b HTTP/1.1" % path, b"Host: x", length, *headers, b"", b""]) + body


def chunked(*pieces, headers=()):
    head = b"\r\n".join([b"POST / HTTP/1.1", b"Host: x", b"Transfer-Encoding: chunked", *headers, b"", b""])
    return head + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
