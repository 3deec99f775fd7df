"""What a trajectory is, as the pool knows it at each call: its group, its channel, whether it is there."""

from __future__ import annotations

import asyncio

from agentworld.pool import open_store
from agentworld.records import NewTrajectory
from agentworld.testing import ScriptedRequest

from .harness import running, until


async def test_a_trajectory_stays_in_its_group() -> None:
    store = open_store("memory://")
    for _ in range(2):  # The second gateway reads the group from the pool.
        async with running("ok", pool=store) as gateway:
            assert (await gateway.say("x", "/t/gx/g/g1"))[0] == 200
            status, body, _ = await gateway.say("x", "/t/gx/g/g2")
            assert (status, body["error"]["code"], body["error"]["param"]) == (409, "conflict", "group")
            assert (await gateway.say("x", "/t/gx"))[0] == 200
    assert {exchange.group_id for exchange in store.list_exchanges("gx")} == {"g1"}


async def test_the_first_of_two_calls_at_once_names_the_group() -> None:
    held = asyncio.Event()

    async def script(request: ScriptedRequest) -> str:
        await held.wait()
        return "ok"

    async with running(script) as gateway:
        first = asyncio.create_task(gateway.say("x", "/t/gx/g/g1"))
        await until(lambda: len(gateway.engine.requests) == 1)
        assert (await asyncio.wait_for(gateway.say("x", "/t/gx/g/g2"), 100))[0] == 409
        held.set()
        assert (await first)[0] == 200


async def test_what_is_declared_after_the_first_call_holds_for_the_next() -> None:
    async with running("ok") as gateway:
        await gateway.say("x", "/t/t1")
        gateway.pool.create_trajectory(NewTrajectory(trajectory_id="t1", channel="val", group_id="g1", agent="planner"))
        await gateway.say("y", "/t/t1")
        assert (await gateway.say("z", "/t/t1/g/g2"))[0] == 409
        assert [(step.channel, step.agent) for step in gateway.steps("t1")] == [("train", None), ("val", "planner")]
        last = gateway.pool.list_exchanges("t1")[-1]
        assert (last.channel, last.group_id) == ("val", "g1")


async def test_a_name_that_no_pool_takes_is_refused_before_the_engine_is_asked() -> None:
    async with running("ok") as gateway:
        said = {"messages": [{"role": "user", "content": "x"}], "model": "m" * 257}
        status, body, _ = await gateway.chat(said, "/t/t1")
        assert (status, body["error"]["param"]) == (400, "model")
        assert gateway.engine.requests == []
