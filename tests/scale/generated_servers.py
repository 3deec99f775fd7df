"""The two servers that generated requests go through: `python -m tests.scale.generated_servers engine|gateway ...`.

`engine` prints its address; it forgets what it was asked. `gateway ENGINE POOL` is `agentworld serve`, with caches that
are full early.
"""

import asyncio
import sys

from agentworld.api import worker
from agentworld.cli.serve import run
from agentworld.config import ModelSettings, ServeSettings
from agentworld.engines.http_surface import serve_until_signal
from agentworld.testing import ScriptedEngine
from tests.gateway.storm import script

REMEMBERED = 100
CACHE_BYTES = 8 << 20
"""Limits are larger elsewhere."""
CALLS = 500


def engine():
    """Serve until a signal."""

    def answer(request):
        if len(scripted.requests) > REMEMBERED:
            scripted.requests.clear()
        return script(request)

    scripted = ScriptedEngine(answer)
    asyncio.run(serve_until_signal(scripted.server(), lambda url: print(url, flush=True)))


def load_small(settings):
    """The application of the worker, with small caches."""
    app = _load(settings)
    server = app._app._gateway
    server.sessions._max_bytes = CACHE_BYTES
    server.retries._limit = CALLS
    forests = server.pool._appender._forests
    forests._token_tips._limit = forests._message_tips._limit = CACHE_BYTES // 4
    return app


_load = worker.load


def gateway(engine_url, pool):
    """Serve until a signal."""
    worker.load = load_small
    model = ModelSettings(
        name="scripted", upstream=engine_url, driver="builtin", tokens="token-in", tokenizer="byte", retries=0
    )
    run(ServeSettings(pool=pool, port=0, models=(model,)), log_level="error")


if __name__ == "__main__":
    {"engine": engine, "gateway": gateway}[sys.argv[1]](*sys.argv[2:])
