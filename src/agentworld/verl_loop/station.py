"""The gateway, the control API and the bridge of one process, in a thread with a loop of its own."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

import msgspec

from agentworld.api.app import create_app
from agentworld.config import ChannelSettings, ModelSettings, ServeSettings
from agentworld.engines.http_surface import EngineApp, Server
from agentworld.engines.tokenizer import load_tokenizer
from agentworld.errors import AgentWorldError, ConfigError, EngineError
from agentworld.factory import EmbeddedPool, open_pool
from agentworld.records import Policy
from agentworld.testing.app_server import AppServer
from agentworld.verl_loop.bridge import Generate, VerlBackend
from agentworld.verl_loop.settings import LoopSettings
from agentworld.verl_loop.versions import publish, run_that_speaks

START_SECONDS = 60.0
T = TypeVar("T")


class Engines(NamedTuple):
    """What verl's configuration says of its engines. `tokenizer`: a folder; `context`: most ids of prompt and reply;
    `mode`: vLLM's `logprobs_mode`, empty for engines that take log-probabilities after the temperature. `channels`:
    sampling that holds whatever an agent asks for.
    """

    tokenizer: str
    context: int
    mode: str
    channels: tuple[tuple[str, ChannelSettings], ...] = ()


class Station:
    """What serves the agents of one process. `url`: of the server, on the loopback address; `pool`: open in this
    process. `start` returns once it answers; a fault of the start is raised there.
    """

    def __init__(self, settings: LoopSettings, generate: Generate, engines: Engines) -> None:
        self.settings = settings
        self.pool: EmbeddedPool = open_pool(settings.pool)
        run = run_that_speaks(self.pool, settings.model, settings.run)
        publish(self.pool, Policy(settings.model, run, 0))
        self.bridge = VerlBackend(
            generate,
            load_tokenizer(engines.tokenizer),
            model=settings.model,
            run=run,
            context=engines.context,
            mode=engines.mode,
        )
        self.bridge.published = lambda version: publish(self.pool, Policy(settings.model, run, version))
        self._channels = engines.channels
        self._model = ModelSettings(
            name=settings.model,
            upstream="http://127.0.0.1:0",
            driver="builtin",
            tokens="token-in",
            tokenizer=engines.tokenizer,
            renderer=settings.renderer,
            context=engines.context,
            logprob_space=None if engines.mode else "temperature",
        )
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="agentworld-station", daemon=True)

    def start(self) -> Station:
        """Serve; returns itself."""
        self._thread.start()
        if not self._ready.wait(START_SECONDS):
            raise EngineError(f"the gateway did not start within {START_SECONDS:g} s")
        if self._fault is not None:
            raise self._fault
        return self

    def stop(self) -> None:
        """End what is served and close the pool; again is no error."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(START_SECONDS)
            self.pool.close()

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Await something of ours in the station's loop, from any loop; cancelling goes through."""

        async def awaited() -> T:
            return await work()

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(awaited(), self._loop))

    def _work(self) -> None:
        # A runner cancels at its end what others had this loop do.
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            try:
                runner.run(self._serve())
            except BaseException as fault:
                self._fault = fault
            finally:
                self._ready.set()

    async def _serve(self) -> None:
        engine = Server(EngineApp(self.bridge))
        await engine.start()
        try:
            model = msgspec.structs.replace(self._model, upstream=engine.url)
            app = create_app(
                ServeSettings(
                    pool=self.settings.pool,
                    models=(model,),
                    channels=dict(self._channels),
                    upstream_timeout=self.settings.call_seconds,
                    idle_seconds=0,
                ),
                self.pool.store,
            )
            async with AppServer(app) as server:
                self.url = server.url
                self._ready.set()
                await self._stop.wait()
                app.end_streams()
        finally:
            await engine.stop()


_stations: dict[tuple[Any, ...], Station] = {}
_lock = threading.Lock()


def station_for(settings: LoopSettings, generate: Generate, engines: Engines) -> Station:
    """The station of these settings in this process, started on first use. `generate`: of the first caller stays."""
    key = (settings.pool, settings.model, settings.run, engines)
    with _lock:
        found = _stations.get(key)
        if found is None:
            try:
                found = Station(settings, generate, engines).start()
            except AgentWorldError:
                raise
            except OSError as error:
                raise ConfigError(f"the gateway cannot be started: {error}", path="pool") from None
            atexit.register(found.stop)
            _stations[key] = found
        return found


def stop_stations() -> None:
    """End all stations of this process."""
    with _lock:
        while _stations:
            _stations.popitem()[1].stop()
