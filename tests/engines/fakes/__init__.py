"""Engines that answer as the real ones do, byte for byte where it matters, and break as told.

Each module here is one engine's HTTP: its routes, the fields that it sends and in which order, plain and streamed. What
it says comes from one `Said`, so that one suite asks the same of every driver.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

from agentworld.config import ModelSettings
from agentworld.engines.base import Engine, open_engine


class Token(NamedTuple):
    """One sampled token; its bytes need not be a whole character."""

    id: int
    data: bytes
    logprob: float


END = 2
WORDS = (Token(17, b"f", -0.25), Token(90, "ü".encode()[:1], -1.5), Token(91, "ür ".encode()[1:], -0.125))
SMILE = (Token(200, "🙂".encode()[:2], -2.0), Token(201, "🙂".encode()[2:3], -3.0), Token(202, "🙂".encode()[3:], -0.5))


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """One reply: its tokens, then the end-of-turn token unless it was cut. `text` is what the tokens spell."""

    tokens: tuple[Token, ...] = (*WORDS, *SMILE)
    finish: str = "stop"
    prompt_ids: tuple[int, ...] = (1, 50, 51, 3)
    reasoning: str = ""
    calls: tuple[tuple[str, str], ...] = ()

    @property
    def sampled(self) -> tuple[Token, ...]:
        """With the end-of-turn token, which has no text."""
        return self.tokens if self.finish == "length" else (*self.tokens, Token(END, b"", -0.0625))

    @property
    def ids(self) -> list[int]:
        return [token.id for token in self.sampled]

    @property
    def logprobs(self) -> list[float]:
        return [token.logprob for token in self.sampled]

    @property
    def text(self) -> str:
        return b"".join(token.data for token in self.tokens).decode()

    def pieces(self) -> list[tuple[str, tuple[Token, ...]]]:
        """The text in whole characters, each piece with the tokens that complete it."""
        out: list[tuple[str, tuple[Token, ...]]] = []
        held: list[Token] = []
        for token in self.sampled:
            held.append(token)
            try:
                text = b"".join(each.data for each in held).decode()
            except UnicodeDecodeError:
                continue
            out.append((text, tuple(held)))
            held = []
        return out


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """What goes wrong. `cut`: the connection closes after so many bytes of the body. `slow`: so many parts of it come,
    and then none for long. `logprob`: of every token.
    """

    status: int | None = None
    error: Any = None
    reset: bool = False
    cut: int | None = None
    slow: int | None = None
    stall: bool = False
    garbage: bool = False
    split: int | None = None
    nan: bool = False
    logprob: float | None = None
    without_usage: bool = False
    without_ids: bool = False
    wrong_ids: bool = False


class Call(NamedTuple):
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: Any


class Stream(NamedTuple):
    """A streamed answer, event by event."""

    events: list[bytes]


Answer = dict[str, Any] | list[Any] | Stream


class Refusal(Exception):
    """An answer with another status than 200."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


class FakeEngine:
    """Serves `answer` on a free port while it is entered. `asked` holds the calls, without those for models."""

    def __init__(self, said: Said | None = None, faults: Faults | None = None) -> None:
        self.said = said or Said()
        self.faults = faults or Faults()
        self.asked: list[Call] = []
        self.waiting = asyncio.Event()
        """Set where a slow answer has come to its wait."""
        self.left = asyncio.Event()
        """Set where its caller went away in this wait."""
        self.url = ""
        self._runner: web.AppRunner | None = None
        self._over = asyncio.Event()

    def answer(self, path: str, body: Any) -> Answer:
        """The engine's own part."""
        raise NotImplementedError

    def spoil(self, tokens: tuple[Token, ...]) -> tuple[Token, ...]:
        """Tokens as a broken engine would have them."""
        if self.faults.nan:
            return tuple(token._replace(logprob=float("nan")) for token in tokens)
        if self.faults.logprob is not None:
            return tuple(token._replace(logprob=self.faults.logprob) for token in tokens)
        return tuple(token._replace(id=-token.id) for token in tokens) if self.faults.wrong_ids else tokens

    async def __aenter__(self) -> FakeEngine:
        app = web.Application(client_max_size=0)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over.set()
        assert self._runner is not None
        await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        faults = self.faults
        data = await request.read()
        body = json.loads(data) if data else None
        if request.method == "POST":
            self.asked.append(Call(request.path_qs, dict(request.headers), body))
        if faults.stall:
            await self._over.wait()
        if faults.reset:
            assert request.transport is not None
            request.transport.abort()
        if faults.status is not None:
            headers = {"location": "/elsewhere"} if faults.status < 400 else None
            return web.json_response(faults.error, status=faults.status, headers=headers)
        try:
            answer = self.answer(request.path, body)
        except Refusal as refusal:
            return web.json_response(refusal.body, status=refusal.status)
        if isinstance(answer, Stream):
            return await self._send(request, answer.events, "text/event-stream; charset=utf-8")
        return await self._send(request, [json.dumps(answer, ensure_ascii=False).encode()], "application/json")

    async def _send(self, request: web.Request, parts: list[bytes], kind: str) -> web.StreamResponse:
        faults = self.faults
        if faults.garbage:
            parts = [*parts[:1], b"data: {<html>\n\n"] if kind.startswith("text/event") else [b"<html>no</html>"]
        data = b"".join(parts)
        response = web.StreamResponse(headers={"content-type": kind})
        await response.prepare(request)
        if faults.split is not None:
            parts = [data[start : start + faults.split] for start in range(0, len(data), faults.split)]
        if faults.cut is not None:
            parts = [data[: faults.cut]]
        for place, part in enumerate(parts):
            if place == faults.slow:
                self.waiting.set()
                try:
                    await self._over.wait()
                except asyncio.CancelledError:
                    self.left.set()
                    raise
            await response.write(part)
        if faults.cut is not None:
            assert request.transport is not None
            request.transport.close()
        await response.write_eof()
        return response


def event(value: Any, name: str | None = None) -> bytes:
    """A server-sent event."""
    head = "" if name is None else f"event: {name}\n"
    return f"{head}data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


DONE = b"data: [DONE]\n\n"


def driver(kind: str, url: str, timeout: float = 20.0, **settings: Any) -> Engine:
    """The driver of a model at a fake."""
    fields = {"name": "model", "upstream": url, "driver": kind, "api_key": "sk-secret", **settings}
    return open_engine(ModelSettings(**fields), timeout)


Make = Callable[[Said | None, Faults | None], FakeEngine]
