"""A server that ends: replies that are on their way into the pool then are on record and sent, or said to be lost."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

import pytest
import structlog

from agentworld.capture import landing
from agentworld.gateway import metrics
from agentworld.pool.memory import MemoryPool
from agentworld.pool.protocol import AppendResult
from agentworld.records import Exchange

from .harness import Harness, running, until


class Held(MemoryPool):
    """Stores an exchange when `release` is called, and not before."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[Exchange, Future[list[AppendResult]]]] = []

    def submit_exchange(self, exchange: Exchange) -> Future[list[AppendResult]]:
        self.asked.append((exchange, Future()))
        return self.asked[-1][1]

    def release(self) -> None:
        for exchange, future in self.asked:
            future.set_result(super().submit_exchange(exchange).result())


async def ask(gateway: Harness, stream: bool) -> tuple[int, bytes]:
    body = {"messages": [{"role": "user", "content": "hello"}], "stream": stream}
    async with gateway.http.post(f"{gateway.url}/t/t1/v1/chat/completions", json=body) as response:
        return response.status, await response.read()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_commit_that_has_begun_is_awaited(stream: bool) -> None:
    pool = Held()
    async with running("w", pool=pool) as gateway:
        call = asyncio.create_task(ask(gateway, stream))
        await until(lambda: len(pool.asked) == 1)
        (task,) = gateway.gateway._calls
        gateway.gateway.end(0.0)
        await until(lambda: task.cancelling() == 1)
        for _ in range(20):
            await asyncio.sleep(0)
        pool.release()
        status, said = await call
        assert status == 200
        assert b'"content":"w"' in said
        assert b"shutting_down" not in said
        assert (b"[DONE]" in said) is stream
        (step,) = gateway.steps("t1")
        assert step.excluded_reason is None
        assert gateway.gateway.state.in_flight == 0
    pool.close()


async def test_a_reply_whose_commit_does_not_end_is_said_to_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landing, "PATIENCE", 0.05)
    lost = metrics.CAPTURE_FAILURES.labels("shutting_down")
    before = lost._value.get()
    pool = Held()
    with structlog.testing.capture_logs() as lines:
        async with running("w", pool=pool) as gateway:
            call = asyncio.create_task(ask(gateway, False))
            await until(lambda: len(pool.asked) == 1)
            gateway.gateway.end(0.0)
            status, said = await call
            assert status == 503
            assert b"shutting_down" in said
            assert gateway.gateway.state.in_flight == 0
    assert [line["trajectory"] for line in lines if line["event"] == "reply_not_recorded"] == ["t1"]
    assert lost._value.get() == before + 1
    pool.close()
