"""Where the processor time of a plain call goes: the application in a process of its own, without the HTTP server that
stands before it, and with a clock around each stage.

    python -m agentworld.bench.stages --upstream http://127.0.0.1:8000 --pool sqlite:///pool.db

prints milliseconds of a call as JSON: under `64` and `1`, the numbers of calls at once, each stage by name, and what
all takes without the clocks, which themselves take some of a stage of many short functions. A stage does not count
what another one that it calls does.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import os
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from agentworld.api import logs, worker
from agentworld.api.app import Server, create_app
from agentworld.api.origins import OriginGuard
from agentworld.bench.replay_engine import task_text
from agentworld.capture.collect import Collector
from agentworld.capture.looks import Looks
from agentworld.capture.recorder import Recorder
from agentworld.capture.sessions import Session
from agentworld.config import ModelSettings, ServeSettings
from agentworld.engines.http_client import HttpClient
from agentworld.engines.quick_replies import READERS
from agentworld.engines.vllm import VllmEngine
from agentworld.gateway.access import Access
from agentworld.gateway.admit import Admission
from agentworld.gateway.answer import Answer
from agentworld.gateway.app import Gateway
from agentworld.gateway.http import Http
from agentworld.pool import open_store
from agentworld.pool.sql.append_intake import PreparedExchange
from agentworld.pool.sql.writer import Writer
from agentworld.pool.sqlite.connection import SqliteConnection
from agentworld.pool.sqlite.session import SqliteWriteSession

CONCURRENCIES = (64, 1)
TASKS, PROMPT = 64, 1_000
WHOLE = "in all, without clocks"
LOOP = "loop: its turns, sockets"
OTHERS = "other threads, queues, wake-ups"
_WRITING = "writing thread: "
STAGES: list[tuple[str, Any, tuple[str, ...]]] = [
    ("loop: metrics, routes by path", Server, ("__call__", "_llm")),
    ("loop: key, host, origin", OriginGuard, ("fault",)),
    ("loop: key, host, origin", Access, ("grant",)),
    ("loop: route, the call's task", Gateway, ("__call__", "_http")),
    ("loop: attempt, place, limits of time, connection", Answer, ("_ask",)),
    ("loop: the rest of the answer", Answer, ("_plain",)),
    ("loop: body, JSON, fields, identity", Gateway, ("_admit",)),
    ("loop: trajectory, model, what is continued", Admission, ("admit",)),
    ("loop: looks at the pool", Looks, ("now",)),
    ("loop: the engine's request", VllmEngine, ("chat",)),
    ("loop: the engine's request", HttpClient, ("request",)),
    ("loop: the engine's reply decoded", READERS, ("chat",)),
    ("loop: its pieces put together", Collector, ("feed", "choices")),
    ("loop: steps planned", Recorder, ("plan",)),
    ("loop: remembered for the next turn", Session, ("add",)),
    ("loop: checked for the pool", PreparedExchange, ("__init__",)),
    ("loop: reply encoded and sent", Http, ("reply",)),
    (f"{_WRITING}rows planned and packed", Writer, ("_write",)),
    (f"{_WRITING}statements", SqliteConnection, ("execute", "many", "many_in_order")),
    (f"{_WRITING}commit", SqliteWriteSession, ("commit",)),
]


class Clocks:
    """Seconds of processor time by stage, each in the thread that is in it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = dict.fromkeys((stage for stage, _, _ in STAGES), 0.0)
        self._own = threading.local()

    def enter(self, stage: str) -> None:
        """This thread is in the stage from here on."""
        inside: list[str] = self._own.__dict__.setdefault("inside", [])
        now = time.thread_time()
        if inside:
            self.seconds[inside[-1]] += now - self._own.since
        inside.append(stage)
        self._own.since = now

    def leave(self) -> None:
        """It is back in the stage that it came from."""
        now = time.thread_time()
        self.seconds[self._own.inside.pop()] += now - self._own.since
        self._own.since = now

    def put_around(self, stage: str, owner: Any, name: str) -> None:
        """Count what a method of a class, or a value of a dict, takes from now on."""
        function = owner[name] if isinstance(owner, dict) else getattr(owner, name)
        timed = self._steps(stage, function) if asyncio.iscoroutinefunction(function) else self._whole(stage, function)
        if isinstance(owner, dict):
            owner[name] = timed
        else:
            setattr(owner, name, timed)

    def _whole(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            self.enter(stage)
            try:
                return function(*args, **kwargs)
            finally:
                self.leave()

        return timed

    def _steps(self, stage: str, function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        @functools.wraps(function)
        async def timed(*args: Any, **kwargs: Any) -> Any:
            return await _Stepped(self, stage, function(*args, **kwargs))

        return timed


class _Stepped:
    """A coroutine that is on the clock while it runs, and not while it waits."""

    def __init__(self, clocks: Clocks, stage: str, coroutine: Any) -> None:
        self._clocks = clocks
        self._stage = stage
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, Any]:
        step, value = self._coroutine.send, None
        while True:
            self._clocks.enter(self._stage)
            try:
                awaited = step(value)
            except StopIteration as ended:
                return ended.value
            finally:
                self._clocks.leave()
            try:
                step, value = self._coroutine.send, (yield awaited)
            except BaseException as error:
                step, value = self._coroutine.throw, error


class Caller:
    """Calls of the application without a server."""

    def __init__(self, app: Server) -> None:
        self._app = app
        said = "You solve the task that is set, with the tools that you have."
        self._bodies = [
            msgspec.json.encode(
                {
                    "model": "replay",
                    "messages": [
                        {"role": "system", "content": said},
                        {"role": "user", "content": task_text(number, PROMPT)},
                    ],
                    "temperature": 1.0,
                    "max_tokens": 256,
                }
            )
            for number in range(TASKS)
        ]
        self._made = 0

    async def load(self, calls: int, concurrency: int) -> None:
        """So many calls, each in a trajectory of its own."""
        numbers = iter(range(self._made, self._made + calls))
        self._made += calls

        async def one_by_one() -> None:
            for number in numbers:
                await asyncio.create_task(self._call(number))

        await asyncio.gather(*(one_by_one() for _ in range(concurrency)))

    async def _call(self, number: int) -> None:
        body = self._bodies[number % TASKS]
        there = [{"type": "http.request", "body": body, "more_body": False}]
        left = asyncio.get_running_loop().create_future()
        sent: list[Any] = []

        async def receive() -> Any:
            return there.pop() if there else await left

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"host", b"127.0.0.1:8400"), (b"content-type", b"application/json")]
        headers.append((b"content-length", str(len(body)).encode()))
        path = f"/t/call-{number}/v1/chat/completions"
        await self._app({"type": "http", "method": "POST", "path": path, "headers": headers}, receive, send)
        if not sent or sent[0]["status"] != 200:
            raise RuntimeError(f"a call was answered with {sent!r:.500}")


async def measure(app: Server, calls: int) -> dict[str, dict[str, float]]:
    """Milliseconds of a call by stage, for each number of calls at once."""
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(worker.POOL_THREADS))
    worker.spare_the_loop()
    messages: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    started = asyncio.Event()

    async def send(message: Any) -> None:
        started.set()

    living = asyncio.create_task(app({"type": "lifespan"}, messages.get, send))
    await messages.put({"type": "lifespan.startup"})
    await started.wait()
    caller, clocks = Caller(app), Clocks()
    found: dict[str, dict[str, float]] = {}
    for concurrency in CONCURRENCIES:
        await caller.load(min(calls, 2 * TASKS), concurrency)
        begun = time.process_time()
        await caller.load(calls, concurrency)
        found[str(concurrency)] = {WHOLE: 1000 * (time.process_time() - begun) / calls}
    for stage, owner, names in STAGES:
        for name in names:
            clocks.put_around(stage, owner, name)
    for concurrency in CONCURRENCIES:
        clocks.seconds.update(dict.fromkeys(clocks.seconds, 0.0))
        of_loop, of_all = time.thread_time(), time.process_time()
        await caller.load(calls, concurrency)
        in_loop, in_all = time.thread_time() - of_loop, time.process_time() - of_all
        stages = dict(clocks.seconds)
        writing = sum(seconds for stage, seconds in stages.items() if stage.startswith(_WRITING))
        stages[LOOP] = in_loop - (sum(stages.values()) - writing)
        stages[OTHERS] = in_all - in_loop - writing
        found[str(concurrency)] |= {stage: 1000 * seconds / calls for stage, seconds in stages.items()}
    await messages.put({"type": "lifespan.shutdown"})
    await living
    return found


def main() -> None:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(prog="agentworld.bench.stages")
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--pool", required=True)
    parser.add_argument("--calls", type=int, default=1_000)
    options = parser.parse_args()
    logs.configure("warning", as_json=False)
    model = ModelSettings(name="replay", upstream=options.upstream, tokens="engine")
    settings = ServeSettings(pool=options.pool, models=(model,))
    pool = open_store(settings.pool)
    app = create_app(settings, pool)
    worker.spare_the_collector()
    try:
        found = asyncio.run(measure(app, options.calls))
    finally:
        pool.close()
    os.write(1, msgspec.json.encode(found) + b"\n")


if __name__ == "__main__":
    main()
