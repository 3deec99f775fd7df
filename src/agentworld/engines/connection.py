"""Calls of one engine over HTTP: posts that yield deltas, and the errors of the network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec

from agentworld.dialects.exchange import Delta
from agentworld.engines.base import EngineBrokeError, EngineTimeoutError
from agentworld.engines.broken import BrokenError, ConnectError
from agentworld.engines.headers import HeaderError, check_header
from agentworld.engines.http_client import HttpClient
from agentworld.engines.http_link import Answer
from agentworld.engines.openai_wire import decode, engine_error
from agentworld.engines.redact import Redactor
from agentworld.engines.sse import read_events
from agentworld.errors import AgentWorldError, ConfigError, EngineError, EngineUnreachableError, InvalidRequestError

CONNECT_SECONDS = 10.0
PROBE_SECONDS = 5.0
KEEP_ALIVE_SECONDS = 4.0
"""Below the five seconds after which uvicorn, and with it vLLM, closes an idle connection."""
STALE_SECONDS = 0.5
MAX_REPLY_BYTES = 512 * 1024 * 1024
"""Of one reply, whole or as a stream; what goes beyond comes from an engine that has lost its way."""
MAX_ERROR_BYTES = 1024 * 1024
"""So much is read of what an engine says of a failure."""
END_SECONDS = 1.0
"""So long a stream that has told its end may take to end."""

Reader = Callable[[bytes], list[Delta]]
"""Turns a plain body, or the data of one event of a stream, into deltas."""
Ends = Callable[[bytes], bool]
"""Whether the data of an event says that nothing comes after it."""
_FAULTS = (ConnectError, BrokenError, TimeoutError, OSError)


def is_done(data: bytes) -> bool:
    """Whether this is what OpenAI's API and all that speak it end a stream with."""
    return data.strip() == b"[DONE]"


class Connection:
    """Speaks HTTP with the engine at `base`.

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
            try:
                check_header(key_header, api_key)
            except HeaderError as error:
                raise ConfigError(
                    f"the key of the engine at {self.base} cannot be sent: {error}",
                    path="models.api_key",
                    hint="Correct api_key, or the variable that it is read from",
                ) from None
        self._timeout = timeout
        self._client = HttpClient(self.base, connect_seconds=CONNECT_SECONDS, idle_seconds=KEEP_ALIVE_SECONDS)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    def _network(self, error: BaseException) -> AgentWorldError:
        if isinstance(error, ConnectError):
            return EngineUnreachableError(
                f"nothing answers at {self.base}: {error}",
                hint="Start the engine, or correct the upstream address",
            )
        if isinstance(error, TimeoutError):
            return EngineTimeoutError(f"the engine at {self.base} did not answer in time")
        said = self.redactor.text(str(error))
        return EngineBrokeError(f"the connection to the engine at {self.base} broke: {said}")

    def _refusal(self, answer: Answer, data: bytes) -> AgentWorldError:
        return engine_error(answer.status, _error_body(data), self.redactor)

    async def get(
        self, path: str, timeout: float = PROBE_SECONDS, *, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """The JSON object at a path."""
        answer = await self.begin("GET", path, b"", headers, timeout)
        try:
            return decode(await self.whole(answer), self.redactor)
        finally:
            answer.close()

    async def post(
        self, path: str, body: dict[str, Any], *, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """The JSON object that a call answers."""
        answer = await self.begin("POST", path, msgspec.json.encode(body), headers)
        try:
            return decode(await self.whole(answer), self.redactor)
        finally:
            answer.close()

    async def begin(
        self,
        method: str,
        path: str,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        seconds: float | None = None,
    ) -> Answer:
        """The reply to a request once its head has come, for the caller to close. `seconds`: that it may take in all,
        None for the time that the connection was made with.
        """
        sent = {**self._headers, **headers} if headers else self._headers
        try:
            limit = self._timeout if seconds is None else seconds
            answer = await self._client.request(method, path, sent, body, limit, STALE_SECONDS)
        except HeaderError as error:
            raise InvalidRequestError(
                f"the header {error.name!r} cannot be sent to the engine: {error}",
                path=error.name,
                hint="Send it with printable ASCII alone",
            ) from None
        except _FAULTS as error:
            raise self._network(error) from error
        if answer.status == 200:
            return answer
        try:
            raise self._refusal(answer, await self._begin_of(answer))
        finally:
            answer.close()

    async def whole(self, answer: Answer) -> bytes:
        """The body; EngineError where it does not end."""
        parts: list[bytes] = []
        size = 0
        try:
            while (piece := await answer.piece()) is not None:
                size = self._size(size, piece)
                parts.append(piece)
        except _FAULTS as error:
            raise self._network(error) from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _size(self, before: int, piece: bytes) -> int:
        size = before + len(piece)
        if size > MAX_REPLY_BYTES:
            raise EngineError(f"the engine at {self.base} sent a reply of over {MAX_REPLY_BYTES} bytes")
        return size

    async def _begin_of(self, answer: Answer) -> bytes:
        """A body of which the beginning says enough."""
        said = b""
        try:
            async for piece in answer.pieces():
                said += piece
                if len(said) > MAX_ERROR_BYTES:
                    break
        except _FAULTS as error:
            raise self._network(error) from error
        return said

    async def _pieces(self, answer: Answer) -> AsyncIterator[bytes]:
        """The body as it comes; EngineError where it does not end."""
        size = 0
        async for piece in answer.pieces():
            size = self._size(size, piece)
            yield piece

    def deltas(
        self,
        path: str,
        body: dict[str, Any],
        read: Reader,
        *,
        headers: Mapping[str, str] | None = None,
        ends: Ends = is_done,
    ) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """The deltas of a call as `read` finds them, streamed where the body says `stream`. `ends`: of the event that
        is the last of a stream; a connection that breaks or stalls after it is no fault of the reply.
        """
        return self.posted(path, msgspec.json.encode(body), bool(body.get("stream")), read, headers=headers, ends=ends)

    def posted(
        self,
        path: str,
        body: bytes,
        stream: bool,
        read: Reader,
        *,
        headers: Mapping[str, str] | None = None,
        ends: Ends = is_done,
    ) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """`deltas` of a body that is JSON already; `stream`: whether it says so."""
        return _Asked(self, path, body, stream, read, headers, ends)

    def read(self, answer: Answer, stream: bool, read: Reader, ends: Ends) -> AsyncIterator[Delta]:
        """The deltas of a reply as `deltas` gives them."""
        if stream and "event-stream" in answer.headers.get("content-type", ""):
            return self._streamed(answer, read, ends)
        return WholeReply(self, answer, read)

    async def _streamed(self, answer: Answer, read: Reader, ends: Ends) -> AsyncIterator[Delta]:
        ended = False
        try:
            async for events in read_events(self._pieces(answer)):
                if not ended and any(map(ends, events)):
                    ended = True
                    answer.hurry(END_SECONDS)
                told = [data for data in events if not is_done(data)]
                held = False
                for left, data in zip(range(len(told))[::-1], told, strict=True):
                    for delta in read(data):
                        held = delta.more = left > 0
                        yield delta
                if held:
                    yield Delta(index=-1)  # The last events said nothing, so nothing else would end the wait.
        except _FAULTS as error:
            if ended:
                return
            raise self._network(error) from error


class _Asked(AbstractAsyncContextManager[AsyncIterator[Delta]]):
    """A call whose deltas are read while the context lasts."""

    def __init__(
        self,
        connection: Connection,
        path: str,
        body: bytes,
        stream: bool,
        read: Reader,
        headers: Mapping[str, str] | None,
        ends: Ends,
    ) -> None:
        self._connection, self._path, self._body, self._headers = connection, path, body, headers
        self._stream, self._read, self._ends = stream, read, ends
        self._answer: Answer

    async def __aenter__(self) -> AsyncIterator[Delta]:
        connection = self._connection
        self._answer = await connection.begin("POST", self._path, self._body, self._headers)
        return connection.read(self._answer, self._stream, self._read, self._ends)

    async def __aexit__(self, *error: object) -> None:
        # An unfinished reply is cut off here, which tells the engine to stop working on it.
        self._answer.close()


class WholeReply(AsyncIterator[Delta]):
    """The deltas of a body that comes whole."""

    def __init__(self, connection: Connection, answer: Answer, read: Reader) -> None:
        self._connection, self._answer, self._read = connection, answer, read
        self._deltas: Iterator[Delta] | None = None

    async def all(self) -> list[Delta]:
        """All of them at once, for who has taken none."""
        return self._read(await self._connection.whole(self._answer))

    async def __anext__(self) -> Delta:
        if self._deltas is None:
            self._deltas = iter(await self.all())
        for delta in self._deltas:
            return delta
        raise StopAsyncIteration


def _error_body(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return data[:100_000].decode("utf-8", "replace")
