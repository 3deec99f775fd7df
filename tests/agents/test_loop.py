"""The white-box loop against a client that says what it is told to."""

import asyncio
from dataclasses import dataclass

import pytest

from agentworld.agents import loop as loop_module
from agentworld.agents.definition import LoopAgent
from agentworld.agents.loop import play_loop
from agentworld.agents.ports import AgentFailure, Play, ignore
from agentworld.errors import ContextLengthError, EngineError, EngineUnreachableError, PausedError
from agentworld.records import FunctionCall, Message, ToolCall
from agentworld.tasks.base import Observation
from agentworld.tasks.environments import Calculator

QUESTION = (Message(role="user", content="How much is 1 + 2 + 3?"),)


@dataclass
class Said:
    message: Message
    finish_reason: str = "stop"


def says(text, finish_reason="stop"):
    return Said(Message(role="assistant", content=text), finish_reason)


def calls(*arguments, name="calculator"):
    made = tuple(ToolCall(f"call_{n}", FunctionCall(name, each)) for n, each in enumerate(arguments))
    return Said(Message(role="assistant", tool_calls=made), "tool_calls")


class Client:
    """Answers chats from a list; what is an exception is raised."""

    def __init__(self, *replies):
        self.replies = list(replies)
        self.asked = []

    async def chat(self, base_url, api_key, messages, *, model="default", tools=(), **sampling):
        self.asked.append({"messages": list(messages), "model": model, "tools": list(tools), **sampling})
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


@dataclass
class Started:
    trajectory_id: str = "trj_1"
    base_url: str | None = "http://here/v1"
    api_key: str | None = None


async def play(client, agent=None, environment=None, started=None, notify=ignore, **sampling):
    played = Play()
    await play_loop(
        agent or LoopAgent(),
        client,
        started or Started(),
        QUESTION,
        environment,
        model="m",
        sampling=sampling,
        play=played,
        notify=notify,
    )
    return played


async def test_tools_until_an_answer():
    client = Client(calls('{"expression": "1 + 2"}'), calls('{"expression": "3 + 3"}'), says("6"))
    played = await play(client, environment=Calculator(), temperature=0.5)
    assert (played.answer, played.stopped, played.calls) == ("6", None, 3)
    assert [(m.role, m.content) for m in client.asked[2]["messages"][2::2]] == [("tool", "3"), ("tool", "6")]
    assert client.asked[0]["tools"] == list(Calculator().tools)
    assert client.asked[0]["temperature"] == 0.5
    # Each prompt goes on where the one before ended, message for message.
    for before, after in zip(client.asked, client.asked[1:], strict=False):
        assert after["messages"][: len(before["messages"])] == before["messages"]


async def test_several_calls_at_once_and_bad_ones_are_observed():
    client = Client(calls('{"expression": "1 + 2"}', "[]", "null", "{", ""), calls("{}", name="shell"), says("?"))
    played = await play(client, environment=Calculator())
    results = [message for message in played.messages if message.role == "tool"]
    assert results[0].content == "3"
    assert [message.tool_call_id for message in results[:5]] == [f"call_{n}" for n in range(5)]
    assert all(message.content.startswith("error:") for message in results[1:])


async def test_a_system_message_stands_first():
    client = Client(says("6"))
    await play(client, LoopAgent(system="Be brief."))
    assert client.asked[0]["messages"][0] == Message(role="system", content="Be brief.")


async def test_turns_run_out():
    client = Client(*[calls('{"expression": "1 + 2"}')] * 3)
    played = await play(client, LoopAgent(max_turns=3), Calculator())
    assert (played.stopped, played.calls) == ("max_turns", 3)


async def test_a_reply_cut_by_its_length_ends_the_loop():
    cut = calls('{"expression": "1 +')
    cut.finish_reason = "length"
    played = await play(Client(cut), environment=Calculator())
    assert (played.stopped, played.calls) == ("length", 1)


async def test_the_environment_may_end_it():
    class Door(Calculator):
        def step(self, name, arguments):
            return Observation("you are out", done=True)

    played = await play(Client(calls("{}")), environment=Door())
    assert (played.stopped, played.messages[-1].content) == (None, "you are out")


async def test_a_full_context_ends_it_after_the_first_call():
    full = ContextLengthError("too long")
    played = await play(Client(calls("{}"), full), environment=Calculator())
    assert (played.stopped, played.calls) == ("context", 1)
    with pytest.raises(AgentFailure, match="too long"):
        await play(Client(full))


async def test_it_waits_while_the_gateway_is_paused(monkeypatch):
    monkeypatch.setattr(loop_module, "FIRST_PAUSE", 0.001)
    heard = []
    client = Client(PausedError("paused"), EngineUnreachableError("away"), says("6"))
    played = await play(client, notify=heard.append)
    assert (played.answer, played.calls) == ("6", 1)
    assert heard == ["waiting: paused", "waiting: away"]


async def test_waiting_ends_with_the_time():
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.25):
            await play(Client(*[PausedError("paused")] * 50))


async def test_an_engine_fault_voids_the_attempt():
    with pytest.raises(AgentFailure, match="no such device"):
        await play(Client(EngineError("no such device")))


async def test_a_server_without_a_gateway():
    with pytest.raises(AgentFailure, match="has no gateway"):
        await play(Client(), started=Started(base_url=None))
