import asyncio
import socket

import pytest

from agentworld.api.app import create_app
from agentworld.client import AsyncFactory, aio
from agentworld.client.connection import ServerUnreachableError
from agentworld.config import ModelSettings, ServeSettings
from agentworld.errors import AgentWorldError, ConfigError, InvalidRequestError, NotFoundError
from agentworld.pool.keeping.records import Retention
from agentworld.pool.memory import MemoryPool
from agentworld.records import Annotation, Feedback, Metrics, NewTrajectory, Policy, Reward
from agentworld.testing import ScriptedEngine, ScriptedReply
from agentworld.testing.app_server import AppServer


@pytest.fixture
async def factory():
    pool = MemoryPool()
    async with AppServer(create_app(ServeSettings(), pool)) as server, AsyncFactory(server.url) as connected:
        yield connected
    pool.close()


async def test_a_run_from_start_to_end(factory):
    started = await factory.start_trajectory(NewTrajectory(trajectory_id="t1", group_id="g"))
    assert started.trajectory.group_id == "g"
    assert await factory.add_rewards([Reward(value=0.5, trajectory_id="t1")]) == 1
    ended = await factory.complete_trajectory("t1", "finished")
    assert ended == await factory.get_trajectory("t1")
    assert [each.trajectory_id for each in (await factory.list_trajectories(limit=5)).items] == ["t1"]
    assert (await factory.set_policy(Policy("m", "r", 1))).version == 1
    assert await factory.add_metrics([Metrics(run="r", step=1, values={"loss": 0.5})]) == 1
    assert (await factory.stats()).rewards == 1


async def test_what_is_deleted_and_collected_is_gone(factory):
    for name in "abc":
        async with factory.trajectory(trajectory_id=name, user=f"of {name}") as t:
            await t.step(prompt_ids=[1], response_ids=[2])
    done = await factory.delete_trajectories(["a", "nobody"], "they asked")
    assert (done.trajectories, done.unknown) == (1, ["nobody"])
    assert (await factory.delete_user("of b")).steps == 1
    assert (await factory.collect(Retention(max_steps=0), include_waiting=True)).trajectories == 1
    assert (await factory.list_trajectories(limit=5)).items == []


async def test_the_context_manager_completes(factory):
    async with factory.trajectory(group="g") as t:
        result = await t.step(prompt_ids=[1], response_ids=[2])
        await t.reward(1.0)
        await t.reward(0.5, name="format", step_id=result.step_id)
    done = await factory.get_trajectory(t.trajectory_id)
    assert (done.status, done.reward) == ("finished", 1.0)
    steps = (await factory.list_steps(trajectory_id=t.trajectory_id, include=("tokens",))).items
    assert [(each.response_ids, each.group_id) for each in steps] == [([2], "g")]
    assert (await factory.get_step(result.step_id)).rewards["format"] == 0.5


async def test_feedback_annotations_and_groups(factory):
    async with factory.trajectory(group="g", group_size=1) as t:
        await t.feedback("rating", value=3)
        await t.annotate("values", [[1, 2], [3, 4]], dtype="int16")
    assert await factory.add_feedback([Feedback(kind="comment", comment="x", trajectory_id=t.trajectory_id)]) == 1
    assert await factory.add_annotations([Annotation(name="one", values=[], step_id="later")]) == 1
    assert [one.kind for one in (await factory.list_feedback(limit=5)).items] == ["rating", "comment"]
    [found] = await factory.get_annotations(trajectory_id=t.trajectory_id)
    assert (found.dtype, found.values.tolist()) == ("int16", [[1, 2], [3, 4]])
    assert (await factory.get_group("g")).closed_by == "size"
    assert [one.group_id for one in (await factory.list_groups(state="closed")).items] == ["g"]


async def test_a_run_that_is_cancelled_has_failed(factory):
    inside, names = asyncio.Event(), []

    async def agent():
        async with factory.trajectory() as t:
            names.append(t.trajectory_id)
            inside.set()
            await asyncio.Event().wait()

    running = asyncio.create_task(agent())
    await inside.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await factory.get_trajectory(names[0])).status == "failed"


async def test_errors_are_those_that_were_raised(factory):
    with pytest.raises(NotFoundError):
        await factory.get_trajectory("none")
    async with factory.trajectory() as t:
        with pytest.raises(InvalidRequestError):
            await t.step(colour=1)
        with pytest.raises(AgentWorldError, match="no gateway"):
            await t.chat([{"role": "user", "content": "hi"}])


async def test_chat_is_sent_once_and_its_error_is_the_engines():
    replies = [ScriptedReply(status=500, error_body="broken"), ScriptedReply(text="four")]
    pool = MemoryPool()
    async with ScriptedEngine(lambda request: replies[request.call], model="m") as engine:
        model = ModelSettings(name="m", upstream=engine.url, driver="builtin", tokens="engine")
        app = create_app(ServeSettings(models=(model,)), pool)
        async with AppServer(app) as server, AsyncFactory(server.url) as factory, factory.trajectory() as t:
            with pytest.raises(AgentWorldError):
                await t.chat([{"role": "user", "content": "2+2?"}])
            reply = await t.chat([{"role": "user", "content": "2+2?"}], temperature=0.0)
            assert reply.message.text == "four"
    pool.close()


async def test_nothing_there(monkeypatch):
    monkeypatch.setattr(aio, "BACKOFF", (0.0, 0.0))
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # Nobody listens there, and nobody else can.
        async with AsyncFactory(f"http://127.0.0.1:{silent.getsockname()[1]}") as factory:
            with pytest.raises(ServerUnreachableError):
                await factory.stats()


async def test_what_is_no_server_of_ours_is_said():
    with ScriptedEngine("four") as engine:
        async with AsyncFactory(engine.url) as factory:
            with pytest.raises(ConfigError, match=r"is no AgentWorld server: it answered 404 .*agentworld serve"):
                await factory.list_trajectories(group_id="g")
