"""What goes on beside the calls: what fails there is told of, begun again, and holds up no end."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import structlog

from agentworld.config import ModelSettings
from agentworld.errors import EngineUnreachableError
from agentworld.gateway import background, heartbeat, metrics, models
from agentworld.gateway.background import LATELY_SECONDS, Background
from agentworld.gateway.heartbeat import Heartbeat
from agentworld.gateway.state import SharedState
from agentworld.gateway.upstreams import Upstreams
from agentworld.pool.memory import MemoryPool

from .clocks import HeldClock
from .harness import running, until


def failed(task: str) -> float:
    return metrics.REGISTRY.get_sample_value("agentworld_background_failures_total", {"task": task}) or 0.0


async def test_a_task_that_fails_is_said_and_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "AGAIN_SECONDS", 0.001)
    clock = HeldClock()
    tasks = Background(clock.now)
    begun, written = 0, "what a user wrote"

    async def work() -> None:
        nonlocal begun
        begun += 1
        if begun < 3:
            raise KeyError(written)
        await asyncio.Event().wait()

    async def ends() -> None:
        return

    before = failed("work")
    with structlog.testing.capture_logs() as lines:
        tasks.begin("work", work)
        tasks.begin("ends", ends)
        await until(lambda: begun == 3)
    said = [line for line in lines if line["event"] == "background_failed"]
    assert [(line["task"], line["error"]) for line in said] == [("work", "KeyError")] * 2
    assert "in work" in said[0]["places"]
    assert written not in str(lines)
    assert failed("work") == before + 2
    clock.advance(5.0)
    assert tasks.failures == [{"task": "work", "error": "KeyError", "seconds_ago": 5.0}]
    clock.advance(LATELY_SECONDS)
    assert tasks.failures == []
    await tasks.end()
    assert not tasks.running


async def test_readiness_tells_of_a_bug_in_a_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "PROBE_SECONDS", 0.001)
    async with running("ok") as gateway:
        engine = gateway.gateway.models.by_name["scripted"].upstreams.all[0].engine
        works = engine.models
        asked = 0

        async def bug() -> Any:
            nonlocal asked
            asked += 1
            if asked == 1:
                raise TypeError("no card")
            return await works()

        monkeypatch.setattr(engine, "models", bug)
        await until(lambda: asked == 1 and bool(gateway.gateway.background.failures))
        async with gateway.http.get(gateway.url + "/readyz") as response:
            status, body = response.status, await response.json()
        # Calls are served all the same.
        assert (status, body["ready"]) == (200, True)
        assert [(each["task"], each["error"]) for each in body["background"]] == [("probes", "TypeError")]
        assert (await gateway.say("hello"))[0] == 200


async def test_a_bug_in_one_probe_is_no_mark_and_hides_no_other() -> None:
    settings = ModelSettings(name="m", upstream="http://10.0.0.1:1", upstreams=("http://10.0.0.2:1",), driver="builtin")
    upstreams = Upstreams(settings, 10.0, HeldClock())

    async def bug() -> Any:
        raise TypeError("no card")

    async def away() -> Any:
        raise EngineUnreachableError("gone")

    first, second = upstreams.all
    first.engine.models, second.engine.models = bug, away  # type: ignore[method-assign]
    with pytest.raises(TypeError):
        await upstreams.probe()
    assert (first.health.sound, second.health.sound) == (True, False)
    first.engine.models = away  # type: ignore[method-assign]
    await upstreams.probe()
    assert not first.health.sound
    await upstreams.close()


class Stuck(MemoryPool):
    """A pool that takes no report until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.go_on, self.left = threading.Event(), threading.Event(), threading.Event()
        self.stuck = False

    def report_worker(self, worker: str, in_flight: int, pauses: int) -> None:
        if self.stuck:
            self.reached.set()
            self.go_on.wait()
        super().report_worker(worker, in_flight, pauses)

    def forget_worker(self, worker: str) -> None:
        super().forget_worker(worker)
        self.left.set()


async def test_the_end_waits_for_a_stuck_report_no_longer_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(heartbeat, "REPORT_SECONDS", 0.0)
    monkeypatch.setattr(heartbeat, "END_SECONDS", 0.05)
    pool = Stuck()
    beat = Heartbeat(pool, SharedState(pool, 0.0))
    await beat.start()
    pool.stuck = True
    await asyncio.to_thread(pool.reached.wait)
    with structlog.testing.capture_logs() as lines:
        await beat.end()
    assert [(line["event"], line["code"]) for line in lines] == [("worker_not_reported", "timeout")]
    assert len(pool.gateway_workers()) == 1
    pool.go_on.set()
    # Once the report goes through, the last word follows.
    await asyncio.to_thread(pool.left.wait)
    assert pool.gateway_workers() == []


async def test_readiness_tells_that_a_worker_cannot_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(heartbeat, "REPORT_SECONDS", 0.0)

    class Failing(MemoryPool):
        failing = False

        def report_worker(self, worker: str, in_flight: int, pauses: int) -> None:
            if self.failing:
                raise TypeError("a bug")
            super().report_worker(worker, in_flight, pauses)

    pool = Failing()
    async with running(pool=pool) as gateway:

        async def told() -> Any:
            async with gateway.http.get(gateway.url + "/readyz") as response:
                return (await response.json()).get("background")

        assert await told() is None
        pool.failing = True
        await until(lambda: gateway.gateway.heartbeat.error is not None)
        assert await told() == [{"task": "heartbeat", "error": "TypeError", "seconds_ago": 0.0}]
        pool.failing = False
        await until(lambda: gateway.gateway.heartbeat.error is None)
        assert await told() is None
    pool.close()
