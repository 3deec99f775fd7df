"""Sessions: a bounded cache over the pool."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from agentworld.capture.holdings import owner
from agentworld.capture.sessions import MAX_TIPS, Session, Sessions, ids_key, message_keys
from agentworld.forest import match, token_array, tools_digest
from agentworld.pool import open_store
from agentworld.pool.memory import MemoryPool
from agentworld.records import FunctionCall, Message, NewTrajectory, Step, TextPart, ToolCall, Trajectory


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
    assert [first.repeated(f"d{number}", 0) for number in range(4)] == ["stp_t1_0", "stp_t1_1", "stp_t1_2", None]
    wanted = [*tip.messages, Message(role="user", content="next")]
    found = match(first.tips, wanted, message_keys(wanted), tools_digest([]))
    assert found is not None
    assert (found.tip.step_id, found.depth) == ("stp_t1_2", len(tip.messages))


def test_what_is_known_of_a_step_is_what_would_be_made_of_it() -> None:
    """Nor does it count otherwise; the size is told as it grows."""
    grown = 0

    def count(size: int) -> None:
        nonlocal grown
        grown += size

    made, given = Session("t1", None), Session("t1", None)
    before = given.size
    given.on_growth = count
    odd = [TextPart("a"), TextPart("b")]
    replies = [
        Message(role="assistant", content="r0"),
        Message(role="assistant", content=tuple(odd), reasoning="thought"),
        Message(role="assistant", tool_calls=(ToolCall("c", FunctionCall("f", "{}")),)),
    ]
    for number, reply in enumerate(replies):
        new = step(number, response_message=reply, tools=[{"type": "function"}] if number else None)
        keys = message_keys(new.prompt_messages or [])
        ids = token_array([*(new.prompt_ids or []), *(new.response_ids or [])])
        made.add(new)
        given.add(new, keys, ids, tools_digest(new.tools))
        for mine, other in zip(made.tips, given.tips, strict=True):
            assert (mine.keys, mine.messages, mine.tools) == (other.keys, other.messages, other.tools)
            assert mine.keys == message_keys(mine.messages)
        assert made.size == given.size == before + grown


async def test_prompts_of_ids_are_known_by_their_ids() -> None:
    """Alike when the step was just made and when it was loaded; a chat that begins with the same reply is another."""
    made = step(0, prompt_messages=[], metadata={"completion": "ids"})
    pool = open_store("memory://")
    pool.append_steps([made])
    session = await Sessions(pool).get("t1")
    fresh = Session("t1", None)
    fresh.add(made, [ids_key([0])])
    assert [tip.keys for tip in session.tips] == [tip.keys for tip in fresh.tips]
    (tip,) = session.tips
    assert (tip.prompt_key, len(tip.keys), len(tip.messages)) == (ids_key([0]), 2, 1)
    assert session.completions == {"stp_t1_0"}
    reply = Message(role="assistant", content="r0")
    assert session.recall([reply, Message(role="user", content="on")])[1] == []
    session.discard("stp_t1_0")
    assert session.completions == set()


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


def dialogue(turns: int, size: int = 2000) -> list[list[Message]]:
    """The requests of a conversation, each decoded anew as from a client's body; the last lacks its reply."""
    body: list[dict[str, str]] = []
    requests = []
    for turn in range(turns):
        body.append({"role": "user", "content": f"{turn} " + "x" * size})
        requests.append(msgspec.json.decode(msgspec.json.encode(body), type=list[Message]))
        body.append({"role": "assistant", "content": f"r{turn}"})
    return requests


def play(session: Session, requests: list[list[Message]]) -> None:
    """Serve the requests as the gateway does, with 100 new ids a turn."""
    parent = None
    for turn, request in enumerate(requests):
        messages, known = session.recall(request)
        keys = message_keys(messages, known)
        assert keys == message_keys(request)
        assert messages == request
        more = {
            "prompt_messages": messages,
            "prompt_ids": list(range(100 * turn + 99)),
            "response_ids": [100 * turn + 99],
            "parent_step_id": parent,
        }
        session.add(step(turn, **more), keys)
        parent = f"stp_t1_{turn}"


def test_a_conversation_takes_memory_for_what_is_new_in_it() -> None:
    sizes = []
    for turns in (20, 40, 80):
        session = Session("t1", None)
        play(session, dialogue(turns))
        sizes.append(session.size)
        objects = {id(message): message for tip in session.tips for message in tip.messages}
        assert len(objects) == 2 * turns
        arrays = {id(owner(tip.ids)) for tip in session.tips if tip.ids is not None}
        assert len(arrays) == 1
        for turn, tip in enumerate(session.tips):
            assert tip.ids is not None
            assert tip.ids.tolist() == list(range(100 * turn + 100))
        assert session.size > turns * 2000
    # Twice the turns take about twice the memory; with copies of the history it would be four times.
    assert sizes[2] < 2.3 * sizes[1] < 2.3 * 2.3 * sizes[0]
    for tip in list(session.tips):
        session.discard(tip.step_id)
    assert session.size == Session("t1", None).size


def test_memory_is_shared_by_steps_that_are_loaded_too() -> None:
    pool = open_store("memory://")
    parents = [None, *(f"stp_t1_{turn}" for turn in range(29))]
    pool.append_steps(
        [
            step(turn, prompt_messages=messages, parent_step_id=parents[turn])
            for turn, messages in enumerate(dialogue(30))
        ]
    )
    session = asyncio.run(Sessions(pool).get("t1"))
    assert len({id(message) for tip in session.tips for message in tip.messages}) == 60


def test_a_branch_keeps_its_own_ids() -> None:
    session = Session("t1", None)
    session.add(step(0, prompt_ids=[1], response_ids=[2]))
    session.add(step(1, prompt_ids=[1, 2, 3], response_ids=[4], parent_step_id="stp_t1_0"))
    session.add(step(2, prompt_ids=[1, 2, 9], response_ids=[8, 8], parent_step_id="stp_t1_0"))
    session.add(step(3, prompt_ids=[1, 7, 9], response_ids=[8], parent_step_id="stp_t1_1"))
    ids = [tip.ids.tolist() for tip in session.tips if tip.ids is not None]
    assert ids == [[1, 2], [1, 2, 3, 4], [1, 2, 9, 8, 8], [1, 7, 9, 8]]


def test_what_a_client_changes_is_kept_as_it_sent_it() -> None:
    session = Session("t1", None)
    play(session, dialogue(2))
    changed = dialogue(3)[2]
    changed[1] = Message(role="assistant", content="other")
    messages, known = session.recall(changed)
    assert messages == changed
    assert len(known) == 1
    # What comes after the change is shared all the same.
    assert messages[2] is session.tips[1].messages[2]


CALL = ToolCall(id="c", function=FunctionCall("f", '{"b": 1, "a": [2]}'))
CALLING = Message(role="assistant", content=None, tool_calls=(CALL,), reasoning="hm")


@pytest.mark.parametrize(
    "echo",
    [
        msgspec.structs.replace(CALLING, content=""),
        msgspec.structs.replace(CALLING, content=()),
        msgspec.structs.replace(CALLING, tool_calls=(ToolCall(id="c", function=FunctionCall("f", '{"a":[2],"b":1}')),)),
    ],
)
def test_what_a_client_only_spells_in_another_way_is_as_it_was_sampled(echo: Message) -> None:
    session = Session("t1", None)
    asked = [Message(role="user", content="q")]
    session.add(step(0, prompt_messages=asked, response_message=CALLING))
    result = Message(role="tool", content="r", tool_call_id="c")
    again = [Message(role="user", content=(TextPart("q"),)), echo, result]
    messages, known = session.recall(again)
    assert messages == [*asked, CALLING, result]
    assert messages[1] is session.tips[0].messages[1]
    assert known == message_keys(again)[:2]
    # Reasoning that was left out stays out; one that differs is another message.
    messages, known = session.recall([*asked, msgspec.structs.replace(echo, reasoning=None), result])
    assert (messages[1], len(known)) == (msgspec.structs.replace(CALLING, reasoning=None), 2)
    other = msgspec.structs.replace(echo, reasoning="no")
    messages, known = session.recall([*asked, other, result])
    assert (messages[1], len(known)) == (other, 1)


async def test_sessions_are_dropped_as_soon_as_they_are_too_large() -> None:
    sessions = Sessions(MemoryPool(), max_bytes=700_000)
    for name in ("a", "b", "c"):
        play(await sessions.get(name), dialogue(60))
        assert sessions.total <= 700_000
        assert sessions.total == sum([(await sessions.get(held)).size for held in sessions.held()])
    assert sessions.held() == ["b", "c"]
    # One that is dropped in the middle of a call counts no more.
    gone = await sessions.get("b")
    for name in ("d", "e"):
        play(await sessions.get(name), dialogue(60))
    assert "b" not in sessions.held()
    before = sessions.total
    gone.add(step(99, step_id="stp_late"))
    assert sessions.total == before


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
    assert session.repeats == {}
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
