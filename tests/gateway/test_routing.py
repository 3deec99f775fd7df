"""Several engines of one model: who takes a call, and what happens where that one fails."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest

from agentworld.config import ModelSettings, ServeSettings
from agentworld.errors import ConfigError, EngineUnreachableError
from agentworld.gateway.models import Models
from agentworld.gateway.upstreams import Upstreams
from agentworld.testing import ScriptedReply, ScriptedRequest, WireFaults

from .clocks import HeldClock
from .fleet import Fleet, Idle, fleet
from .harness import until

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
MODES = ["engine", "token-in"]
DIED = ScriptedReply(status=500, error_body={"error": {"message": "the engine died"}})
BUSY = ScriptedReply(status=429, error_body={"error": {"message": "too many"}})
AWAY = ScriptedReply(status=503, error_body={"error": {"message": "starting"}})


async def stream(gateway: Fleet, path: str) -> str:
    """The text of a streamed call."""
    text = ""
    client = gateway.client(path)
    async for event in await client.chat.completions.create(model="m", messages=HELLO, stream=True):
        for choice in event.choices:
            text += choice.delta.content or ""
    return text


async def ask(gateway: Fleet, trajectory: str, streamed: bool) -> str:
    """The text of a call that has to work."""
    if streamed:
        return await stream(gateway, f"/t/{trajectory}")
    status, body, _ = await gateway.say("hello", f"/t/{trajectory}")
    assert status == 200, body
    text: str = body["choices"][0]["message"]["content"]
    return text


def several(*addresses: str, **more: Any) -> Upstreams:
    settings = ModelSettings(name="m", upstream=addresses[0], upstreams=addresses[1:], **more)
    return Upstreams(settings, 10.0, HeldClock())


def chosen(upstreams: Upstreams, trajectories: list[str]) -> list[str]:
    return [upstreams.ranked(each)[0].address for each in trajectories]


async def test_all_gateways_choose_alike_and_evenly() -> None:
    addresses = [f"http://10.0.0.{number}:8000" for number in range(4)]
    trajectories = [f"trj_{number}" for number in range(400)]
    here, there = several(*addresses), several(*reversed(addresses))
    assert chosen(here, trajectories) == chosen(there, trajectories)
    counts = [chosen(here, trajectories).count(address) for address in addresses]
    assert min(counts) > 60


async def test_an_engine_that_fails_moves_its_own_trajectories_only() -> None:
    upstreams = several(*(f"http://10.0.0.{number}:8000" for number in range(4)))
    trajectories = [f"trj_{number}" for number in range(200)]
    before = chosen(upstreams, trajectories)
    lost = upstreams.all[1]
    lost.health.fail(EngineUnreachableError("gone"))
    after = chosen(upstreams, trajectories)
    assert lost.address in before
    assert lost.address not in after
    assert [(old, new) for old, new in zip(before, after, strict=True) if old != new and old != lost.address] == []
    lost.health.succeed()
    assert chosen(upstreams, trajectories) == before


async def test_where_none_is_well_all_are_tried() -> None:
    upstreams = several("http://10.0.0.1:1", "http://10.0.0.2:1")
    for each in upstreams.all:
        each.health.fail(EngineUnreachableError("gone"))
    assert len(upstreams.ranked("t")) == 2


async def test_turns_of_a_trajectory_stay_on_one_engine() -> None:
    async with fleet("A", "B", "C") as gateway:
        for number in range(3):
            trajectory = gateway.home(number)
            for _ in range(3):
                assert await ask(gateway, trajectory, False) == "ABC"[number]
        assert gateway.calls() == [3, 3, 3]
        (step, *_) = gateway.steps(gateway.home(1))
        assert step.metadata["engine"] == gateway.engines[1].url
        assert "failed_tries" not in step.metadata


@pytest.mark.parametrize("tokens", MODES)
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("failing", "code"),
    [
        (DIED, "engine_error"),
        (BUSY, "rate_limit_exceeded"),
        (AWAY, "engine_unreachable"),
        (ScriptedReply(status=404, error_body={"error": "no such model"}), "engine_error"),
        (ScriptedReply(status=200, error_body="<html>"), "engine_error"),
        (ScriptedReply(text="xyz", faults=WireFaults(drop_after=0)), "engine_error"),
    ],
    ids=["died", "busy", "away", "unknown", "garbage", "reset"],
)
async def test_another_engine_takes_over(tokens: str, streamed: bool, failing: ScriptedReply, code: str) -> None:
    async with fleet(failing, "fine", tokens=tokens) as gateway:
        trajectory = gateway.home(0)
        assert await ask(gateway, trajectory, streamed) == "fine"
        # One exchange with one step, which tells what was tried before.
        (step,) = gateway.steps(trajectory)
        (exchange,) = gateway.pool.list_exchanges(trajectory)
        assert exchange.error is None
        assert step.excluded_reason is None
        assert step.response_ids == gateway.engines[1].requests[0].sampled_ids[0]
        first, second = (engine.url for engine in gateway.engines)
        assert step.metadata["failed_tries"] == [[first, code]]
        assert step.metadata["engine"] == second
        figures = gateway.figures()
        assert [(each.calls, each.failures, each.failovers, each.retries) for each in figures] == [
            (1, 1, 1, 0),
            (1, 0, 0, 1),
        ]
        assert {each.in_flight for each in figures} == {0}


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_engine_that_nobody_reaches_is_passed_over_from_then_on(streamed: bool) -> None:
    async with fleet("A", "B", dead=[0]) as gateway:
        trajectory = gateway.home(0)
        for _ in range(3):
            assert await ask(gateway, trajectory, streamed) == "B"
        assert [each.calls for each in gateway.figures()] == [1, 3]
        assert [each.healthy for each in gateway.figures()] == [False, True]


@pytest.mark.parametrize("tokens", MODES)
async def test_half_a_plain_reply_is_asked_for_anew(tokens: str) -> None:
    half = ScriptedReply(text="half of it", faults=WireFaults(malformed=True))
    async with fleet(half, "whole", tokens=tokens) as gateway:
        assert await ask(gateway, gateway.home(0), False) == "whole"
        (step,) = gateway.steps()
        assert step.response_message is not None
        assert step.response_message.text == "whole"


@pytest.mark.parametrize("tokens", MODES)
async def test_what_the_client_has_seen_is_never_asked_for_again(tokens: str) -> None:
    broken = ScriptedReply(text="half of it", faults=WireFaults(drop_after=4))
    async with fleet(broken, "other", tokens=tokens) as gateway:
        trajectory = gateway.home(0)
        with pytest.raises(openai.APIError):
            await stream(gateway, f"/t/{trajectory}")
        assert gateway.calls() == [1, 0]
        assert gateway.steps(trajectory) == []
        (exchange,) = gateway.pool.list_exchanges(trajectory)
        assert exchange.error is not None
        assert exchange.error["code"] == "engine_error"


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_what_is_the_callers_fault_is_asked_once(status: int) -> None:
    wrong = ScriptedReply(status=status, error_body={"error": {"message": "temperature is too high"}})
    async with fleet(wrong, wrong) as gateway:
        answer, body, _ = await gateway.say("hello", f"/t/{gateway.home(0)}")
        assert answer == 400
        assert "too high" in body["error"]["message"]
        assert gateway.calls() == [1, 0]
        assert all(each.healthy for each in gateway.figures())


async def test_where_all_fail_the_last_error_is_told_and_one_exchange_kept() -> None:
    async with fleet(DIED, AWAY) as gateway:
        trajectory = gateway.home(0)
        status, body, _ = await gateway.say("hello", f"/t/{trajectory}")
        assert (status, body["error"]["code"]) == (502, "engine_error")
        assert gateway.steps(trajectory) == []
        (exchange,) = gateway.pool.list_exchanges(trajectory)
        assert exchange.error is not None
        assert exchange.error["code"] == "engine_error"
        # The third and last try is of the first one again, as the second is away.
        assert gateway.calls() == [2, 1]


async def test_one_engine_is_asked_again_after_a_while() -> None:
    clock = Idle()
    async with fleet([AWAY, BUSY, "fine"], clock=clock) as gateway:
        assert await ask(gateway, "t1", False) == "fine"
        assert gateway.calls() == [3]
        assert clock.slept == [0.25, 0.5]
        (step,) = gateway.steps("t1")
        assert [code for _, code in step.metadata["failed_tries"]] == ["engine_unreachable", "rate_limit_exceeded"]
        assert "engine" not in step.metadata


async def test_a_fault_that_will_not_pass_is_not_asked_for_again() -> None:
    async with fleet([DIED, "fine"]) as gateway:
        assert (await gateway.say("hello"))[0] == 502
        assert gateway.calls() == [1]


async def test_tries_end_with_their_number_and_with_their_time() -> None:
    async with fleet(AWAY, retries=4) as gateway:
        assert (await gateway.say("hello"))[0] == 503
        assert gateway.calls() == [5]
    async with fleet(AWAY, retries=9, serve={"upstream_timeout": 1.0}) as gateway:
        assert (await gateway.say("hello"))[0] == 503
        assert gateway.calls() == [3]  # After 0.25 s and 0.5 s, 1 s more would be too late.
    async with fleet(AWAY, "B", retries=0) as gateway:
        assert (await gateway.say("hello", f"/t/{gateway.home(0)}"))[0] == 503
        assert gateway.calls() == [1, 0]


async def test_an_engine_comes_back_with_the_first_call_that_works() -> None:
    clock = HeldClock()
    async with fleet([AWAY, "A", "A"], "B", clock=clock) as gateway:
        trajectory = gateway.home(0)
        assert await ask(gateway, trajectory, False) == "B"
        assert await ask(gateway, trajectory, False) == "B"
        clock.advance(1.0)
        assert await ask(gateway, trajectory, False) == "A"
        assert all(each.healthy for each in gateway.figures())
        assert gateway.calls() == [2, 2]


async def test_probes_find_an_engine_that_is_gone_and_one_that_is_back() -> None:
    clock = HeldClock()
    async with fleet("A", "B", clock=clock) as gateway:
        await until(lambda: clock.sleeping == 1)
        address = gateway.engines[0].url
        host, port = address.removeprefix("http://").split(":")
        await gateway.engines[0].__aexit__()
        clock.advance(5.0)
        await until(lambda: not gateway.figures()[0].healthy and clock.sleeping == 1)
        assert await ask(gateway, gateway.home(1), False) == "B"
        gateway.engines[0]._address = (host, int(port))
        await gateway.engines[0].__aenter__()
        clock.advance(5.0)
        await until(lambda: gateway.figures()[0].healthy)
        assert await ask(gateway, gateway.home(0), False) == "A"


async def test_readiness_tells_of_every_engine() -> None:
    async with fleet("A", "B", "C", dead=[1]) as gateway:
        async with gateway.http.get(gateway.url + "/readyz") as response:
            body = await response.json()
            assert response.status == 200
        (model,) = body["models"]
        assert model["ready"] is True
        assert [each["ready"] for each in model["engines"]] == [True, False, True]
        assert [each["engine"] for each in model["engines"]] == [each.address for each in gateway.upstreams]
        assert "nothing answers" in model["engines"][1]["error"]
    async with fleet("A", "B", dead=[0, 1]) as gateway, gateway.http.get(gateway.url + "/readyz") as response:
        assert response.status == 503


async def test_an_engine_that_answers_no_call_is_not_ready() -> None:
    async with fleet(DIED) as gateway:
        for _ in range(3):
            assert (await gateway.say("x"))[0] == 502
        async with gateway.http.get(gateway.url + "/readyz") as response:
            assert response.status == 503
            (model,) = (await response.json())["models"]
            assert "the engine died" in model["error"]


async def test_calls_beyond_the_limit_wait_in_order_and_then_are_refused() -> None:
    held = asyncio.Event()
    order: list[str] = []

    async def script(request: ScriptedRequest) -> str:
        order.append(request.messages[-1]["content"])
        await held.wait()
        return "ok"

    async with fleet(script, concurrency=2, queue=2, clock=HeldClock()) as gateway:
        calls = []
        for number in range(4):
            calls.append(asyncio.create_task(gateway.say(str(number), f"/t/t{number}")))
            await until(lambda: sum((gateway.figures()[0].in_flight, gateway.figures()[0].waiting)) == len(calls))
        status, body, headers = await gateway.say("one too many", "/t/t9")
        assert (status, body["error"]["code"]) == (429, "queue_full")
        assert int(headers["retry-after"]) >= 1
        assert (await gateway.chat({"messages": HELLO}, "/t/t9"))[0] == 429
        await until(lambda: len(order) == 2)
        assert (gateway.figures()[0].in_flight, gateway.figures()[0].waiting, gateway.figures()[0].refused) == (2, 2, 2)
        held.set()
        assert [(await call)[0] for call in calls] == [200] * 4
        assert sorted(order[:2]) == ["0", "1"]
        assert sorted(order[2:]) == ["2", "3"]
        assert (gateway.figures()[0].in_flight, gateway.figures()[0].waiting) == (0, 0)
        # A call that was refused is on record as failed, and has no step.
        assert gateway.steps("t9") == []
        assert {(each.error or {}).get("code") for each in gateway.pool.list_exchanges("t9")} == {"queue_full"}


async def test_a_call_that_waits_too_long_is_refused() -> None:
    clock, held = HeldClock(), asyncio.Event()

    async def script(request: ScriptedRequest) -> str:
        await held.wait()
        return "ok"

    async with fleet(script, concurrency=1, queue_seconds=7.0, clock=clock) as gateway:
        first = asyncio.create_task(gateway.say("a"))
        await until(lambda: len(gateway.engine.requests) == 1)
        second = asyncio.create_task(gateway.say("b"))
        await until(lambda: gateway.figures()[0].waiting == 1)
        clock.advance(7.0)
        status, body, _ = await second
        assert (status, body["error"]["code"]) == (429, "queue_full")
        held.set()
        assert (await first)[0] == 200


async def test_a_client_that_leaves_the_queue_frees_its_place() -> None:
    held = asyncio.Event()

    async def script(request: ScriptedRequest) -> str:
        await held.wait()
        return "ok"

    async with fleet(script, concurrency=1, clock=HeldClock()) as gateway:
        first = asyncio.create_task(gateway.say("a"))
        await until(lambda: len(gateway.engine.requests) == 1)
        second = asyncio.create_task(gateway.say("b"))
        await until(lambda: gateway.figures()[0].waiting == 1)
        second.cancel()
        await until(lambda: gateway.figures()[0].waiting == 0)
        held.set()
        assert (await first)[0] == 200
        assert gateway.calls() == [1]


async def test_the_next_engine_takes_what_the_warm_one_has_no_room_for() -> None:
    held = asyncio.Event()

    async def script(request: ScriptedRequest) -> str:
        await held.wait()
        return "A"

    async with fleet(script, "B", concurrency=1, queue=0) as gateway:
        trajectory = gateway.home(0)
        first = asyncio.create_task(ask(gateway, trajectory, False))
        await until(lambda: gateway.calls() == [1, 0])
        assert await ask(gateway, trajectory, False) == "B"
        held.set()
        assert await first == "A"


def test_settings_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="twice"):
        several("http://a:1", "http://b:1", "http://a:1/")
    model = ModelSettings(name="m", upstream="http://a:1", concurrency=3)
    with pytest.raises(ConfigError, match="concurrency of 3 cannot be shared by 4"):
        Models(ServeSettings(models=(model,), workers=4))
    # Six for two workers are three for each.
    shared = Models(ServeSettings(models=(ModelSettings(name="m", upstream="http://a:1", concurrency=6),), workers=2))
    assert shared.by_name["m"].upstreams.all[0].slots._limit == 3
