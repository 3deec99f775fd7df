"""What runs in each worker process of `agentworld serve`."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import structlog
from litestar.concurrency import set_asyncio_executor

from agentworld.api import logs
from agentworld.api.app import Server, create_app
from agentworld.api.processes import die_with_parent
from agentworld.config import ServeSettings
from agentworld.errors import AgentWorldError
from agentworld.http_server.lifespan import Receive, Scope, Send
from agentworld.http_server.running import run
from agentworld.pool import open_store
from agentworld.pool.protocol import Pool

# Threads that wait for the pool: for the LLM routes, and for the control API, whose slow reads must not hold those up.
POOL_THREADS = CONTROL_THREADS = 64
COLLECTING = (250_000, 20, 50)  # see `spare_the_collector`
LAST_WORDS = 5.0  # seconds in which what was broken off can be recorded


class WorkerSettings(msgspec.Struct, frozen=True):
    """What the main process hands to a worker. It goes through memory, so keys show neither in `ps` nor in a file."""

    serve: ServeSettings
    main_pid: int
    log_level: logs.Level = "info"
    log_json: bool = True
    rewards: str | None = None
    """The follower's name of the process that runs the server's evaluators."""


def work(settings: WorkerSettings) -> None:
    """Serve until the signal that ends the server; ends the process with one line where it cannot start."""
    die_with_parent(settings.main_pid)
    logs.configure(settings.log_level, as_json=settings.log_json)
    serve = settings.serve
    try:
        worker = load(settings)
        asyncio.run(run(worker, serve.host, serve.port, stall_seconds=serve.write_timeout, ending=worker.end))
    except AgentWorldError as error:
        print(f"agentworld: {error.one_line()}", file=sys.stderr, flush=True)
        sys.exit(1)


def load(settings: WorkerSettings) -> Worker:
    """The application of one worker on the pool of its settings, which it opens."""
    pool = open_store(settings.serve.pool)
    separate_threads()
    spare_the_collector()
    return Worker(create_app(settings.serve, pool, settings.rewards), pool, settings.serve.grace)


def spare_the_collector() -> None:
    """Have the garbage collector pass over what is there at the start, and look at what calls leave less often.

    Each call makes thousands of objects, nearly all of which go as soon as nobody refers to them. What is left in
    cycles, of which calls leave none, waits until there are so many more objects: some tens of megabytes at most.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTING)


def spare_the_loop() -> None:
    """Have the event loop keep no list of the asynchronous generators that run, of which each call makes some. It is
    there to close them when the loop ends, and calls end before. Call in the loop's thread while it runs.
    """
    sys.set_asyncgen_hooks(firstiter=None)


def separate_threads() -> None:
    """Have the framework run the handlers of the control API in threads of their own, not in those of the loop."""
    set_asyncio_executor(ThreadPoolExecutor(CONTROL_THREADS, thread_name_prefix="control"))


class Worker:
    """The application with its pool, which is closed after the shutdown."""

    def __init__(self, app: Server, pool: Pool, grace: float) -> None:
        self._app = app
        self._pool = pool
        self._grace = grace

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Coroutine[Any, Any, None]:
        """One connection."""
        if scope["type"] != "lifespan":
            return self._app(scope, receive, send)
        return self._live(scope, receive, send)

    def end(self) -> None:
        """Begin to end: streams end at once, calls of models have their time of grace, and what they have then goes on
        record. Call in the event loop.
        """
        self._app.end(self._grace)
        cut_off_after(self._grace + LAST_WORDS)

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        # asyncio's own default is a few threads for each core, but these mostly wait for commits, which they share.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(POOL_THREADS, thread_name_prefix="pool"))
        spare_the_loop()
        try:
            await self._app(scope, receive, send)
        finally:
            self._pool.close()


def cut_off_after(seconds: float) -> None:
    """End this process after `seconds`, whatever it still does. What was acknowledged is in the pool by then."""

    def cut() -> None:
        structlog.get_logger("agentworld.api").warning("requests in flight are cut off", after_seconds=seconds)
        os._exit(1)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
