import asyncio
import sys
import threading

import pytest
from litestar.concurrency import get_asyncio_executor, set_asyncio_executor

from agentworld.api.worker import CONTROL_THREADS, separate_threads, spare_the_loop
from agentworld.pool.memory import MemoryPool
from tests.api.serving import Serving


@pytest.fixture
def separated():
    separate_threads()
    yield
    get_asyncio_executor().shutdown()
    set_asyncio_executor(None)


def test_the_control_api_takes_no_threads_from_the_gateway(separated):
    threads = set()

    class Watched(MemoryPool):
        def list_steps(self, **options):
            threads.add(threading.current_thread().name.split("_")[0])
            return super().list_steps(**options)

        def events(self, after=0, limit=1000, **about):
            threads.add(threading.current_thread().name.split("_")[0])
            return super().events(after, limit, **about)

    with Serving(Watched()) as server:
        assert server.get("/api/v1/steps?where=reward>0")[0] == 200
        assert server.get("/api/v1/events", Accept="application/json")[0] == 200
        assert threads == {"control"}
    assert get_asyncio_executor()._max_workers == CONTROL_THREADS


async def test_the_loop_keeps_no_list_of_generators_and_closes_those_that_are_dropped():
    closed = asyncio.Event()

    async def numbers():
        try:
            for number in range(10):
                yield number
        finally:
            closed.set()

    loop, before = asyncio.get_running_loop(), sys.get_asyncgen_hooks()
    spare_the_loop()
    try:
        one = numbers()
        assert await anext(one) == 0
        assert not loop._asyncgens
        del one
        await asyncio.wait_for(closed.wait(), 10)
    finally:
        sys.set_asyncgen_hooks(*before)
