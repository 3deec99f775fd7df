"""The whole server in a thread of the test, on a pool in memory, with plain requests to it."""

import asyncio
import http.client
import json
import threading
from urllib.parse import urlsplit

import pytest
from litestar import Litestar

from agentworld.api import app as app_module
from agentworld.api.app import create_app
from agentworld.config import ServeSettings
from agentworld.pool.memory import MemoryPool
from agentworld.testing.app_server import AppServer


class Routed:
    """In place of `Litestar`: the routes of a server that has ended serve the next one, on its own state.

    Reading the signatures of all routes is most of what it takes to make a server.
    """

    def __init__(self):
        self._guard = threading.Lock()
        self._free = {}

    def __call__(self, routes, *, state, request_max_body_size, **more):
        with self._guard:
            free = self._free.setdefault(request_max_body_size, [])
            control = free.pop() if free else None
        if control is None:
            return Litestar(routes, state=state, request_max_body_size=request_max_body_size, **more)
        control.state = state
        return control

    def give_back(self, control, settings):
        with self._guard:
            self._free[settings.max_body_bytes].append(control)


ROUTED = Routed()


class Serving:
    """`with Serving() as server`: server.url, server.pool and requests."""

    def __init__(self, pool=None, **settings):
        self.pool = pool or MemoryPool()
        self._settings = ServeSettings(**settings)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(app_module, "Litestar", ROUTED)
            self.app = create_app(self._settings, self.pool)
        self.url = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._fault = None

    async def _run(self):
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with AppServer(self.app) as server:
                self.url = server.url
                self._ready.set()
                await self._stop.wait()
                self.app.end_streams()
        except BaseException as error:
            self._fault = error
            raise
        finally:
            self._ready.set()

    def __enter__(self):
        self._thread.start()
        assert self._ready.wait(100)
        assert self.url, self._fault
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(timeout=100)
        assert not self._thread.is_alive()
        ROUTED.give_back(self.app._control, self._settings)
        self.pool.close()

    def end_streams(self):
        """What the server does at the signal that ends it."""
        self._loop.call_soon_threadsafe(self.app.end_streams)

    def send(self, method, path, body=None, headers=None):
        """Status, headers and body (parsed where it is JSON); `body` is bytes, or sent as JSON."""
        address = urlsplit(self.url)
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=100)
        try:
            sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            typed = {} if method in ("GET", "HEAD", "OPTIONS") else {"Content-Type": "application/json"}
            connection.request(method, path, sent, {**typed, **(headers or {})})
            response = connection.getresponse()
            content = response.read()
            if (response.headers.get("content-type") or "").startswith("application/json") and content:
                content = json.loads(content)
            return response.status, response.headers, content
        finally:
            connection.close()

    def get(self, path, **headers):
        """Status and body."""
        status, _, content = self.send("GET", path, headers=headers)
        return status, content

    def post(self, path, body=None):
        """Status and body."""
        status, _, content = self.send("POST", path, body)
        return status, content
