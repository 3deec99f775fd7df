"""Sessions: a bounded cache over the pool."""

from __future__ import annotations

import asyncio

from agentworld.capture.sessions import MAX_TIPS, Session, Sessions, message_keys
from agentworld.forest import match, tools_digest
from agentworld.pool import open_store
from agentworld.pool.memory import MemoryPool
from agentworld.records import Message, NewTrajectory, Step, Trajectory


def step(number: int, trajectory: str = "t1", **more: object) -> Step:
    messages = [Message(role="user", content="go")]
    for earlier in range(number):
        messages += [Message(role="assistant", content=f"r{earlier}"), Message(role="user", content="on")]
    return Step(
        **{  # type: ignore[arg-type]
            "step_id": f"stp_{trajectory}_{number}",
            "trajectory_id": trajectory,
            "prompt_messages": messages,
            "response_message": Message(role="assistant", content=f"r{number}"),
            "prompt_ids": list(range(number + 1)),
            "response_ids": [7, 8],
            "finish_reason": "stop",
            "metadata": {"body_digest": f"d{number}", "renderer": "ren"},
            **more,
        }
    )


async def test_loaded_once_and_like_the_steps() -> None:
    pool = open_store("memory://")
    pool.append_steps([step(number) for number in range(3)])
    sessions = Sessions(pool)
    first, second = await asyncio.gather(sessions.get("t1"), sessions.get("t1"))
    assert first is second
    assert [tip.step_id for tip in first.tips] == ["stp_t1_0", "stp_t1_1", "stp_t1_2"]
    tip = first.tips[2]
    assert tip.ids is not None
    assert (tip.ids.tolist(), tip.prompt_length) == ([0, 1, 2, 7, 8], 3)
    assert first.renderers["stp_t1_2"] == "ren"
    assert first.repeats == {f"d{number}": {0: f"stp_t1_{number}"} for number in range(3)}
    wanted = [*tip.messages, Message(role="user", content="next")]
    found = match(first.tips, wanted, message_keys(wanted), tools_digest([]))
    assert found is not None
    assert (found.tip.step_id, found.depth) == ("stp_t1_2", len(tip.messages))


async def test_what_other_workers_stored_is_taken_in() -> None:
    pool = open_store("memory://")
    pool.append_steps([step(0)])
    sessions = Sessions(pool)
    session = await sessions.get("t1")
    assert not await sessions.refresh(session)
    pool.append_steps([step(number) for number in range(1, 80)])
    assert await sessions.refresh(session)
    assert [tip.step_id for tip in session.tips] == [f"stp_t1_{number}" for number in range(80)]


async def test_a_trajectory_that_is_not_there_yet() -> None:
    session = await Sessions(open_store("memory://")).get("new")
    assert (session.trajectory, session.tips) == (None, [])


async def test_the_least_recently_used_goes_first() -> None:
    sessions = Sessions(MemoryPool(), max_bytes=3000)
    for name in ("a", "b"):
        sessions.fresh(name)
    await sessions.get("a")
    sessions.fresh("c")
    sessions.trim()
    assert len(sessions) == 2
    kept = await sessions.get("a")
    assert kept is await sessions.get("a")
    assert sessions.held() == ["c", "a"]


def test_tips_are_bounded_and_the_same_step_is_one_tip() -> None:
    session = Session("t1", None)
    for number in range(MAX_TIPS + 10):
        session.add(step(0, step_id=f"stp_{number}"))
    session.add(step(0, step_id="stp_9"))
    assert len(session.tips) == MAX_TIPS
    assert session.tips[0].step_id == "stp_10"
    assert len(session.renderers) == MAX_TIPS
    empty = Session("t2", None).size
    assert session.size > empty


def test_an_aborted_reply_is_no_tip() -> None:
    session = Session("t1", None)
    session.add(step(0, finish_reason="abort"))
    assert session.tips == []
    assert session.knows("stp_t1_0")


async def test_a_created_trajectory_is_known() -> None:
    pool = open_store("memory://")
    pool.create_trajectory(NewTrajectory(trajectory_id="t1", group_id="g1"))
    session = await Sessions(pool).get("t1")
    assert isinstance(session.trajectory, Trajectory)
    assert session.trajectory.group_id == "g1"


def test_a_step_that_did_not_become_durable_is_forgotten() -> None:
    session = Session("t1", None)
    before = session.size
    session.add(step(0))
    session.add(step(1))
    session.discard("stp_t1_0")
    session.discard("stp_t1_1")
    assert (session.tips, session.renderers, session.size) == ([], {}, before)
    assert session.repeats == {"d0": {}, "d1": {}}
    assert not session.knows("stp_t1_1")


async def test_steps_that_another_worker_stored_between_ours_are_found() -> None:
    pool = open_store("memory://")
    pool.append_steps([step(0)])
    sessions = Sessions(pool)
    session = await sessions.get("t1")
    pool.append_steps([step(1), step(2)])
    session.add(step(2))
    assert await sessions.refresh(session)
    assert {tip.step_id for tip in session.tips} == {"stp_t1_0", "stp_t1_1", "stp_t1_2"}
    assert not await sessions.refresh(session)
