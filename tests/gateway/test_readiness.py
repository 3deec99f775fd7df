"""One look at pool and engines speaks for all who ask."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentworld.gateway import models
from agentworld.gateway.readiness import FRESH_SECONDS, Shared

from .clocks import HeldClock
from .harness import running


async def test_one_look_at_a_time_and_one_a_second() -> None:
    clock, go_on = HeldClock(), asyncio.Event()
    looks = 0

    async def look() -> int:
        nonlocal looks
        looks += 1
        await go_on.wait()
        return looks

    shared = Shared(look, clock.now)
    asking = [asyncio.create_task(shared.get()) for _ in range(5)]
    await asyncio.sleep(0)
    left = asking.pop()
    left.cancel()  # Who leaves takes the look from nobody.
    clock.advance(60.0)
    go_on.set()
    assert await asyncio.gather(*asking) == [1] * 4
    clock.advance(FRESH_SECONDS / 2)
    assert await shared.get() == 1
    clock.advance(FRESH_SECONDS / 2)
    assert await shared.get() == 2
    await shared.settle()


async def test_a_look_that_fails_tells_all_and_is_done_again() -> None:
    clock, errors = HeldClock(), [OSError("gone")]

    async def look() -> str:
        for error in errors:
            raise error
        return "well"

    shared = Shared(look, clock.now)
    for _ in range(2):
        with pytest.raises(OSError, match="gone"):
            await shared.get()
    errors.clear()
    clock.advance(FRESH_SECONDS)
    assert await shared.get() == "well"


async def test_who_asks_often_costs_engines_and_pool_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    # The gateway looks at its engines by itself too; where this takes long, that look would be counted.
    monkeypatch.setattr(models, "FIRST_PROBE_SECONDS", 3_600.0)
    async with running("ok") as gateway:
        app = gateway.gateway
        app.conditions = Shared(app._look, HeldClock().now)
        engine = app.models.by_name["scripted"].upstreams.all[0].engine
        asked: list[str] = []
        cards, written = engine.models, gateway.pool.check_writable

        async def counted() -> Any:
            asked.append("engine")
            return await cards()

        def counted_too() -> None:
            asked.append("pool")
            written()

        monkeypatch.setattr(engine, "models", counted)
        monkeypatch.setattr(gateway.pool, "check_writable", counted_too)

        async def ready() -> int:
            async with gateway.http.get(gateway.url + "/readyz") as response:
                return response.status

        assert await asyncio.gather(*(ready() for _ in range(20))) == [200] * 20
        assert sorted(asked) == ["engine", "pool"]
        # That it ends is told at once.
        app.end(60.0)
        assert await ready() == 503
        assert len(asked) == 2
