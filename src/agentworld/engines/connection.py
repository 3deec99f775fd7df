"""One aiohttp session to one engine: posts that yield deltas, and the errors of the network."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec

from agentworld.dialects.exchange import Delta
from agentworld.engines.base import EngineBrokeError, EngineTimeoutError
from agentworld.engines.openai_wire import decode, engine_error
from agentworld.engines.redact import Redactor
from agentworld.engines.sse import read_events
from agentworld.errors import AgentWorldError, EngineUnreachableError

CONNECT_SECONDS = 10.0
PROBE_SECONDS = 5.0
KEEP_ALIVE_SECONDS = 4.0
"""Below the five seconds after which uvicorn, and with it vLLM, closes an idle connection."""
STALE_SECONDS = 0.5

Reader = Callable[[bytes], list[Delta]]
"""Turns a plain body, or the data of one event of a stream, into deltas."""


class Connection:
    """Speaks HTTP with the engine at `base`; the session opens with the first call, inside its event loop.

    Redirects are errors: following one would send prompts to an address that nobody configured. The key goes into
    `key_header`, behind `Bearer` where that is `authorization`.
    """

    def __init__(self, base: str, api_key: str | None, timeout: float, *, key_header: str = "authorization") -> None:
        trimmed = base.rstrip("/")
        self.base = trimmed.removesuffix("/v1")
        self.redactor = Redactor(api_key)
        self._headers = {"content-type": "application/json"}
        if api_key:
            self._headers[key_header] = f"Bearer {api_key}" if key_header == "authorization" else api_key
        self._timeout = aiohttp.ClientTimeout(total=timeout, sock_connect=CONNECT_SECONDS)
        self._session: aiohttp.ClientSession | None = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                timeout=self._timeout,
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS),
                headers=self._headers,
                auto_decompress=True,
            )
        return self._session

    async def close(self) -> None:
        """Close the session."""
        if self._session is not None:
            await self._session.close()

    def _network(self, error: BaseException) -> AgentWorldError:
        if isinstance(error, aiohttp.ClientConnectorError):
            return EngineUnreachableError(
                f"nothing answers at {self.base}: {error.strerror or error}",
                hint="Start the engine, or correct the upstream address",
            )
        if isinstance(error, asyncio.TimeoutError | aiohttp.ServerTimeoutError):
            return EngineTimeoutError(f"the engine at {self.base} did not answer in time")
        said = self.redactor.text(str(error))
        return EngineBrokeError(f"the connection to the engine at {self.base} broke: {type(error).__name__}: {said}")

    def _refusal(self, response: aiohttp.ClientResponse, data: bytes) -> AgentWorldError:
        return engine_error(response.status, _error_body(data), self.redactor)

    async def get(
        self, path: str, timeout: float = PROBE_SECONDS, *, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """The JSON object at a path."""
        try:
            async with self._open().get(
                self.base + path, timeout=aiohttp.ClientTimeout(total=timeout), headers=headers, allow_redirects=False
            ) as response:
                data = await response.read()
                if response.status != 200:
                    raise self._refusal(response, data)
                return decode(data, self.redactor)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._network(error) from error

    async def post(
        self, path: str, body: dict[str, Any], *, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """The JSON object that a call answers."""
        async with self._request(path, body, headers) as response:
            return decode(await self._whole(response), self.redactor)

    @asynccontextmanager
    async def _request(
        self, path: str, body: dict[str, Any], headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        data = msgspec.json.encode(body)
        session = self._open()
        try:
            response = await self._send(session, path, data, headers)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._network(error) from error
        whole = False
        try:
            if response.status != 200:
                raise self._refusal(response, await self._whole(response))
            yield response
            whole = response.content.at_eof()
        finally:
            # An unfinished reply is cut off here, which tells the engine to stop working on it.
            if whole:
                response.release()
            else:
                response.close()

    async def _whole(self, response: aiohttp.ClientResponse) -> bytes:
        try:
            return await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._network(error) from error

    async def _send(
        self, session: aiohttp.ClientSession, path: str, data: bytes, headers: Mapping[str, str] | None
    ) -> aiohttp.ClientResponse:
        """Send once more where a kept-alive connection turned out to be closed; that shows at once, unlike a crash."""
        begun = time.monotonic()
        try:
            return await session.post(self.base + path, data=data, headers=headers, allow_redirects=False)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            if isinstance(error, aiohttp.ClientConnectorError) or time.monotonic() - begun > STALE_SECONDS:
                raise
            return await session.post(self.base + path, data=data, headers=headers, allow_redirects=False)

    @asynccontextmanager
    async def deltas(
        self, path: str, body: dict[str, Any], read: Reader, *, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[AsyncIterator[Delta]]:
        """The deltas of a call as `read` finds them, streamed where the body says `stream`."""
        async with self._request(path, body, headers) as response:
            yield self._read(response, bool(body.get("stream")), read)

    async def _read(self, response: aiohttp.ClientResponse, stream: bool, read: Reader) -> AsyncIterator[Delta]:
        try:
            if not stream or "event-stream" not in response.headers.get("content-type", ""):
                for delta in read(await response.read()):
                    yield delta
                return
            async for data in read_events(response.content.iter_any()):
                if data.strip() == b"[DONE]":
                    continue
                for delta in read(data):
                    yield delta
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._network(error) from error


def _error_body(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return data[:100_000].decode("utf-8", "replace")
