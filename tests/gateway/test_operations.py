"""What a gateway tells of itself: metrics, log lines, readiness; and how it ends."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import structlog
from prometheus_client import generate_latest

from agentworld.errors import PoolError, PoolFullError
from agentworld.gateway import metrics
from agentworld.gateway.log_context import add_call
from agentworld.gateway.readiness import PoolProbe, Shared
from agentworld.pool.memory import MemoryPool
from agentworld.testing.scripted_engine import ScriptedReply, ScriptedRequest

from .fleet import fleet
from .harness import Harness, running, until

HELLO = [{"role": "user", "content": "hi"}]
EVENTS = "agentworld_engine_events_total"


class Unwritable(MemoryPool):
    """A pool whose disk is full from the moment that it is said to be."""

    error: PoolError | None = None

    def check_writable(self) -> None:
        if self.error is not None:
            raise self.error
        super().check_writable()

    def submit_exchange(self, exchange: Any) -> Any:
        if self.error is not None:
            raise self.error
        return super().submit_exchange(exchange)


def value(name: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(name, labels) or 0.0


async def ready(gateway: Harness) -> tuple[int, dict[str, Any]]:
    async with gateway.http.get(gateway.url + "/readyz") as response:
        return response.status, await response.json()


async def talk(gateway: Harness, turns: int, path: str) -> None:
    messages: list[dict[str, Any]] = list(HELLO)
    for _ in range(turns):
        status, body, _ = await gateway.chat({"messages": messages}, path)
        assert status == 200
        messages = [*messages, body["choices"][0]["message"], {"role": "user", "content": "more"}]


@pytest.mark.parametrize("tokens", ["engine", "token-in"])
async def test_calls_are_counted(tokens: str) -> None:
    async with running("ok", tokens=tokens, name=f"counted-{tokens}", engine={"model": f"counted-{tokens}"}) as gateway:
        added = value("agentworld_added_seconds_count")
        await talk(gateway, 3, "/t/t1")
        steps = gateway.steps("t1")
        model = f"counted-{tokens}"
        sampled = sum(len(step.response_ids or ()) for step in steps)
        assert value("agentworld_tokens_total", model=model, kind="sampled") == sampled > 0
        prompted = sum(len(step.prompt_ids or ()) for step in steps)
        assert value("agentworld_tokens_total", model=model, kind="prompt") == prompted
        turns = [value("agentworld_continued_turns_total", model=model, extended=each) for each in ("true", "false")]
        assert turns == [2.0 if tokens == "token-in" else 0.0, 0.0]
        assert value("agentworld_added_seconds_count") == added + 3


async def test_a_turn_of_several_replies_goes_on_once() -> None:
    async with running("ok", tokens="token-in", name="several", engine={"model": "several"}) as gateway:
        _, body, _ = await gateway.chat({"messages": HELLO}, "/t/t1")
        more = [*HELLO, body["choices"][0]["message"], {"role": "user", "content": "more"}]
        assert (await gateway.chat({"messages": more, "n": 2}, "/t/t1"))[0] == 200
        assert value("agentworld_continued_turns_total", model="several", extended="true") == 1


async def test_the_time_of_the_engine_is_not_the_gateways() -> None:
    """Of a reply that an engine takes long for, the gateway adds next to nothing."""
    held = asyncio.Event()

    async def script(request: ScriptedRequest) -> str:
        await held.wait()
        return "ok"

    async with running(script) as gateway:
        before = value("agentworld_added_seconds_sum")
        call = asyncio.create_task(gateway.say("x"))
        await until(lambda: gateway.gateway.state.in_flight == 1)
        started = asyncio.get_running_loop().time()
        await until(lambda: asyncio.get_running_loop().time() - started > 0.5)
        held.set()
        assert (await call)[0] == 200
        took = asyncio.get_running_loop().time() - started
        assert value("agentworld_added_seconds_sum") - before < took - 0.4


async def test_forks_quarantine_and_failures_are_counted() -> None:
    async with running() as gateway:
        before = value("agentworld_forks_total", reason="parallel")
        for _ in range(2):
            await gateway.say("the same", "/t/t1")
        assert value("agentworld_forks_total", reason="parallel") == before + 1
    failed = value("agentworld_call_failures_total", code="engine_unreachable")
    async with running(upstream="http://127.0.0.1:9") as gateway:
        assert (await gateway.say("x"))[0] == 503
    assert value("agentworld_call_failures_total", code="engine_unreachable") == failed + 1


async def test_a_pool_that_takes_nothing_is_counted_and_makes_it_unready() -> None:
    pool = Unwritable()
    async with running(pool=pool) as gateway:
        assert (await ready(gateway))[0] == 200
        pool.error = PoolFullError("the disk is full")
        before = value("agentworld_capture_failures_total", code="pool_full")
        assert (await gateway.say("x"))[0] == 507
        assert value("agentworld_capture_failures_total", code="pool_full") == before + 1
        # Another look and another try, without waiting until the last ones are old.
        gateway.gateway.probe, gateway.gateway.conditions = PoolProbe(pool), Shared(gateway.gateway._look)
        status, body = await ready(gateway)
        assert (status, body["ready"], body["pool"]["ready"]) == (503, False, False)
        assert "the disk is full" in body["pool"]["error"]
        pool.error = None
    pool.close()


async def test_one_try_of_the_pool_speaks_for_all_who_ask() -> None:
    tries = 0

    class Counting(MemoryPool):
        def check_writable(self) -> None:
            nonlocal tries
            tries += 1

    probe = PoolProbe(Counting())
    await asyncio.gather(*(probe.check() for _ in range(20)))
    await probe.check()
    assert tries == 1


async def test_a_pool_that_does_not_answer_is_not_ready() -> None:
    stuck = threading.Event()

    class Stuck(MemoryPool):
        def check_writable(self) -> None:
            stuck.wait(100)

    probe = PoolProbe(Stuck(), patience=0.05)
    with pytest.raises(PoolError, match="has not taken a write"):
        await probe.check()
    stuck.set()
    await probe.settle()


async def test_engine_counters_reach_the_metrics() -> None:
    async with running(name="figured", engine={"model": "figured"}) as gateway:
        assert (await gateway.say("x"))[0] == 200
        engine = gateway.engine.url
        gateway.gateway._engine_metrics.sync(gateway.gateway.models.figures())
        gateway.gateway._engine_metrics.sync(gateway.gateway.models.figures())
        labels = {"model": "figured", "engine": engine}
        assert value(EVENTS, kind="calls", **labels) == 1
        assert value(EVENTS, kind="failovers", **labels) == 0
        assert value("agentworld_engine_state", kind="waiting", **labels) == 0
        assert b"agentworld_engine_state" in generate_latest(metrics.REGISTRY)


async def test_every_line_about_a_call_names_its_trajectory() -> None:
    async with running(upstream="http://127.0.0.1:9") as gateway:
        structlog_config = structlog.get_config()
        lines: list[dict[str, Any]] = []

        def keep(logger: Any, name: str, event: dict[str, Any]) -> Any:
            lines.append(dict(event))
            raise structlog.DropEvent

        structlog.configure(processors=[add_call, keep])
        try:
            assert (await gateway.say("x", "/t/t1"))[0] == 503
            assert (await gateway.chat({"messages": "none"}, "/t/t2"))[0] == 400
            assert (await gateway.chat({"messages": "none"}))[0] == 400
        finally:
            structlog.configure(**structlog_config)
    lines = [line for line in lines if line["event"] in ("call_failed", "request")]
    said = [(line.get("trajectory"), line["code"]) for line in lines]
    assert [line["event"] for line in lines] == ["call_failed", "request"] * 3
    assert said[::2] == said[1::2]
    assert said[::2] == [("t1", "engine_unreachable"), ("t2", "invalid_request"), (None, "invalid_request")]


@pytest.mark.parametrize("ends", ["update", "client"])
async def test_what_ends_a_call_without_a_fault_is_no_failure(ends: str) -> None:
    begun = asyncio.Event()

    async def script(request: ScriptedRequest) -> ScriptedReply:
        begun.set()
        if ends == "client":
            await asyncio.Event().wait()
        return ScriptedReply(text="", finish_reason="abort")

    code = "engine_aborted" if ends == "update" else "client_closed_request"
    failures, aborts = "agentworld_call_failures_total", "agentworld_call_aborts_total"
    before = value(aborts, code=code)
    async with fleet(script) as gateway:
        (figures,) = gateway.figures()
        counted = {"model": "scripted", "engine": figures.engine}  # An engine of another test may have had this port.
        known = {kind: value(EVENTS, kind=kind, **counted) for kind in ("aborted", "failures")}
        call = asyncio.create_task(gateway.say("hello", "/t/t1"))
        await begun.wait()
        if ends == "client":
            call.cancel()
        else:
            assert (await call)[0] == 503
        await until(lambda: gateway.gateway.in_flight == 0)
        (figures,) = gateway.figures()
        assert (figures.failures, figures.aborted, figures.healthy) == (0, 17 if ends == "update" else 0, True)
    assert (value(aborts, code=code), value(failures, code=code)) == (before + 1, 0)
    assert value(EVENTS, kind="aborted", **counted) == known["aborted"] + figures.aborted
    assert value(EVENTS, kind="failures", **counted) == known["failures"]


async def test_an_ending_server_lets_calls_finish_and_takes_no_more() -> None:
    held = asyncio.Event()

    async def script(request: ScriptedRequest) -> str:
        await held.wait()
        return "ok"

    async with running(script) as gateway:
        call = asyncio.create_task(gateway.say("x", "/t/t1"))
        await until(lambda: gateway.gateway.state.in_flight == 1)
        gateway.gateway.end(60.0)
        status, body, headers = await gateway.say("y")
        assert (status, body["error"]["code"], headers["connection"]) == (503, "shutting_down", "close")
        assert "retry-after" in headers
        status, body = await ready(gateway)
        assert (status, body["ready"], body["ending"]) == (503, False, True)
        held.set()
        assert (await call)[0] == 200
        assert len(gateway.steps("t1")) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_calls_that_outlast_the_grace_are_broken_off_and_on_record(stream: bool) -> None:
    begun = asyncio.Event()

    async def script(request: ScriptedRequest) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    async with running(script) as gateway:
        body = {"messages": HELLO, "stream": stream}

        async def ask() -> tuple[int, bytes]:
            async with gateway.http.post(f"{gateway.url}/t/t1/v1/chat/completions", json=body) as response:
                return response.status, await response.read()

        call = asyncio.create_task(ask())
        await begun.wait()
        gateway.gateway.end(0.0)
        status, said = await call
        assert status == 503
        assert b"shutting_down" in said
        await until(lambda: len(gateway.pool.list_exchanges("t1")) == 1)
        (exchange,) = gateway.pool.list_exchanges("t1")
        assert exchange.error is not None
        assert exchange.error["code"] == "client_closed_request"
        assert gateway.gateway.state.in_flight == 0
