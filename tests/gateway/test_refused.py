"""Calls that are refused before they are placed are on record in the trajectory that they name."""

from typing import Any

import pytest

from agentworld.gateway import refused
from agentworld.records import Exchange, NewTrajectory

from .harness import Harness, running

FINE: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}


def only(gateway: Harness, trajectory_id: str = "t1") -> Exchange:
    (found,) = gateway.pool.list_exchanges(trajectory_id)
    return found


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({**FINE, "reasoning": {"effort": "low"}}, 400, "reasoning"),
        ({**FINE, "temperature": "hot"}, 400, "temperature"),
        ({"messages": [{"role": "narrator", "content": "hi"}]}, 400, "role"),
        ({**FINE, "model": "other"}, 404, "other"),
    ],
)
async def test_what_is_refused_is_on_record(body: dict[str, Any], status: int, says: str) -> None:
    async with running(serve={"strict_models": True}) as gateway:
        gateway.pool.create_trajectory(NewTrajectory(trajectory_id="t1", group_id="g", agent="a", channel="val"))
        answered, reply, headers = await gateway.chat(body, "/t/t1")
        assert (answered, headers["x-agentworld-trajectory"]) == (status, "t1")
        found = only(gateway)
        assert found.error is not None
        assert (found.error["status"], found.error["code"]) == (status, reply["error"]["code"])
        assert says in found.error["message"] + str(found.error["path"])
        assert (found.dialect, found.model, found.channel, found.agent) == (
            "chat",
            body.get("model", ""),
            "val",
            "a",
        )
        assert gateway.pool.stats().failed_exchanges == 1


async def test_a_body_that_is_none_and_a_pause_are_too() -> None:
    async with running() as gateway:
        gateway.pool.create_trajectory(NewTrajectory(trajectory_id="t1"))
        async with gateway.http.post(
            f"{gateway.url}/v1/messages",
            data=b"{",
            headers={"content-type": "application/json", "x-agentworld-trajectory": "t1"},
        ) as response:
            assert response.status == 400
        assert only(gateway).error["status"] == 400  # type: ignore[index]
        gateway.pool.create_trajectory(NewTrajectory(trajectory_id="t2"))
        gateway.pool.set_paused(True)
        await gateway.gateway.state.read(0.0)
        assert (await gateway.say("hi", authorization="Bearer aw-t-t2"))[0] == 503
        first = only(gateway, "t2")
        assert first.error["code"] == "paused"  # type: ignore[index]
        # Its retry is known as that of a call that failed.
        gateway.pool.set_paused(False)
        await gateway.gateway.state.read(0.0)
        assert (await gateway.say("hi", authorization="Bearer aw-t-t2", x_stainless_retry_count="1"))[0] == 200
        (step,) = gateway.steps("t2")
        assert (step.metadata.get("after_failure"), step.fork_reason) == (True, None)


async def test_no_trajectory_is_made_of_refusals() -> None:
    async with running() as gateway:
        for path in ("/t/new", ""):
            status, _, headers = await gateway.chat({**FINE, "temperature": "hot"}, path)
            assert (status, "x-agentworld-trajectory" in headers) == (400, False)
        assert gateway.pool.list_trajectories().items == []
        assert gateway.pool.stats().exchanges == 0


async def test_a_client_in_a_loop_fills_no_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused, "MOST", 3)
    async with running() as gateway:
        gateway.pool.create_trajectory(NewTrajectory(trajectory_id="t1"))
        gateway.pool.create_trajectory(NewTrajectory(trajectory_id="t2"))
        for name in ("t1", "t1", "t1", "t1", "t1", "t2"):
            assert (await gateway.chat({**FINE, "temperature": "hot"}, f"/t/{name}"))[0] == 400
        counts = [len(gateway.pool.list_exchanges(name)) for name in ("t1", "t2")]
        assert counts == [3, 1]


async def test_a_body_that_goes_on_as_it_came_is_no_json_where_a_field_that_comes_again_is_none() -> None:
    body = b'{"messages": [{"role": "user", "content": "hi"}], "tools": [1e999], "tools": []}'
    async with running(tokens="none", driver="openai") as gateway:
        async with gateway.http.post(f"{gateway.url}/v1/chat/completions", data=body) as answer:
            assert answer.status == 400
            assert "not valid JSON" in (await answer.json())["error"]["message"]
        assert gateway.engine.requests == []
