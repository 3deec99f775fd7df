"""A relay that does only what no gateway can leave out which stores what was sampled before it answers: what a call
costs at least on this machine, with this server, this client and this storage.

    python -m agentworld.bench.bare_relay --upstream http://127.0.0.1:8000 --database relay.db --port 8400

The gateway's own HTTP server and client; the body decoded once, and sent on with what has the engine give ids; the
reply decoded into typed structs; one row of a call, ids and log-probabilities as blobs, in groups that a writing thread
commits with `synchronous=FULL`; the answer after the commit. Left out: other APIs and streams, checks, keys,
trajectories, what is stored once, errors in the caller's API, limits, metrics, logs.
"""

from __future__ import annotations

import argparse
import asyncio
import queue
import sqlite3
import threading
from array import array
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import msgspec

from agentworld.engines.http_client import HttpClient
from agentworld.http_server.running import run

Message = MutableMapping[str, Any]
Row = tuple[str, bytes, bytes, bytes, str]
ROWS_TOGETHER = 256
CALL_SECONDS = 600.0
_TABLE = """CREATE TABLE IF NOT EXISTS calls (
    pk INTEGER PRIMARY KEY, path TEXT NOT NULL, prompt_ids BLOB NOT NULL, reply_ids BLOB NOT NULL,
    logprobs BLOB NOT NULL, reply TEXT NOT NULL)"""
_INSERT = "INSERT INTO calls (path, prompt_ids, reply_ids, logprobs, reply) VALUES (?, ?, ?, ?, ?)"
_TO_ENGINE = {"content-type": "application/json"}
_HEADERS = [(b"content-type", b"application/json")]


class _Token(msgspec.Struct, gc=False):
    logprob: float


class _Logprobs(msgspec.Struct):
    content: list[_Token]


class _Said(msgspec.Struct):
    content: str


class _Choice(msgspec.Struct):
    message: _Said
    logprobs: _Logprobs
    token_ids: list[int]
    finish_reason: str


class _Reply(msgspec.Struct):
    id: str
    choices: list[_Choice]
    prompt_token_ids: list[int]


_reply = msgspec.json.Decoder(_Reply)
_body = msgspec.json.Decoder(dict[str, Any])


class Rows:
    """The writing thread: what waits is one transaction, whose callers are told after its commit."""

    def __init__(self, database: Path) -> None:
        self._raw = sqlite3.connect(database, isolation_level=None, check_same_thread=False)
        self._raw.execute("PRAGMA journal_mode=WAL")
        self._raw.execute("PRAGMA synchronous=FULL")
        self._raw.execute(_TABLE)
        self._queue: queue.SimpleQueue[tuple[Row, asyncio.Future[None]] | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    async def put(self, row: Row) -> None:
        """Return once the row is durable."""
        stored: asyncio.Future[None] = self._loop.create_future()
        self._queue.put((row, stored))
        await stored

    def close(self) -> None:
        """Write what waits, and close the file."""
        self._queue.put(None)
        self._thread.join()
        self._raw.close()

    def _write(self) -> None:
        going = True
        while going:
            group: list[tuple[Row, asyncio.Future[None]]] = []
            first = True
            while len(group) < ROWS_TOGETHER and (first or not self._queue.empty()):
                first = False
                if (taken := self._queue.get()) is None:
                    going = False
                    break
                group.append(taken)
            if group:
                self._commit(group)

    def _commit(self, group: list[tuple[Row, asyncio.Future[None]]]) -> None:
        fault: Exception | None = None
        try:
            self._raw.execute("BEGIN IMMEDIATE")
            self._raw.executemany(_INSERT, [row for row, _ in group])
            self._raw.execute("COMMIT")
        except sqlite3.Error as error:
            fault = error
            if self._raw.in_transaction:
                self._raw.execute("ROLLBACK")
        self._loop.call_soon_threadsafe(_tell, [stored for _, stored in group], fault)


def _tell(stored: list[asyncio.Future[None]], fault: Exception | None) -> None:
    for each in stored:
        if each.done():
            continue
        if fault is None:
            each.set_result(None)
        else:
            each.set_exception(fault)


class Relay:
    """The application."""

    def __init__(self, upstream: str, database: Path) -> None:
        self._upstream = upstream
        self._database = database
        self._client: HttpClient
        self._rows: Rows

    async def __call__(self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Any) -> None:
        """One connection."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if scope["method"] != "POST":  # Whoever asks whether it runs.
            await _answer(send, 404, b"{}")
            return
        parts = []
        while True:
            message = await receive()
            parts.append(message.get("body", b""))
            if not message.get("more_body"):
                break
        body = _body.decode(b"".join(parts))
        body["logprobs"] = body["return_token_ids"] = True
        answer = await self._client.request(
            "POST", "/v1/chat/completions", _TO_ENGINE, msgspec.json.encode(body), CALL_SECONDS, 0.5
        )
        reply = _reply.decode(await answer.read())
        answer.close()
        choice = reply.choices[0]
        logprobs = array("f", [token.logprob for token in choice.logprobs.content])
        prompt, sampled = array("i", reply.prompt_token_ids), array("i", choice.token_ids)
        said = choice.message.content
        await self._rows.put((scope["path"], prompt.tobytes(), sampled.tobytes(), logprobs.tobytes(), said))
        shown: dict[str, Any] = {"index": 0, "finish_reason": choice.finish_reason}
        shown["message"] = {"role": "assistant", "content": said}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(sampled)}
        whole = {"id": reply.id, "object": "chat.completion", "choices": [shown], "usage": usage}
        await _answer(send, 200, msgspec.json.encode(whole))

    async def _live(self, receive: Callable[[], Awaitable[Message]], send: Any) -> None:
        await receive()
        self._client = HttpClient(self._upstream, connect_seconds=10.0, idle_seconds=4.0)
        self._rows = Rows(self._database)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self._rows.close()
        await self._client.close()
        await send({"type": "lifespan.shutdown.complete"})


async def _answer(send: Any, status: int, data: bytes) -> None:
    headers = [*_HEADERS, (b"content-length", b"%d" % len(data))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data})


def main() -> None:
    """Serve until a signal."""
    from agentworld.api.worker import spare_the_collector

    parser = argparse.ArgumentParser(prog="agentworld.bench.bare_relay")
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--database", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    spare_the_collector()
    asyncio.run(run(Relay(options.upstream, options.database), "127.0.0.1", options.port))


if __name__ == "__main__":
    main()
