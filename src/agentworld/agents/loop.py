"""The white-box agent: ask the model, run the tools it calls, ask again, until it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from agentworld.agents.definition import LoopAgent
from agentworld.agents.ports import AgentFailure, FactoryClient, Notify, Play, Reply, Started, ignore
from agentworld.errors import AgentWorldError, ContextLengthError, EngineUnreachableError, PausedError
from agentworld.records import Message
from agentworld.tasks.base import Environment

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 2.0


async def play_loop(
    agent: LoopAgent,
    client: FactoryClient,
    started: Started,
    messages: Sequence[Message],
    environment: Environment | None,
    *,
    model: str,
    sampling: Mapping[str, Any],
    play: Play,
    notify: Notify = ignore,
) -> None:
    """Run the loop and fill `play` as it goes, so that what was reached by a time-out is known.

    AgentFailure where a call failed for a reason that is not the policy's.
    """
    if started.base_url is None:
        raise AgentFailure("the server has no gateway; start `agentworld serve` with --upstream and --model")
    play.messages = [*([Message(role="system", content=agent.system)] if agent.system else []), *messages]
    tools = list(environment.tools) if environment is not None else []
    for _ in range(agent.max_turns):
        reply = await ask(client, started.base_url, started.api_key, play, model, tools, sampling, notify)
        if reply is None:
            return
        said = reply.message
        play.messages.append(said)
        play.answer = said.text
        if reply.finish_reason == "length":
            play.stopped = "length"
            return
        if not said.tool_calls or environment is None:
            return
        over = False
        for call in said.tool_calls:
            # A tool may take its time; the other rollouts go on.
            content, done = await asyncio.to_thread(environment.step, call.function.name, call.function.arguments)
            over = over or done
            play.messages.append(Message(role="tool", content=content, tool_call_id=call.id))
        if over:
            return
    play.stopped = "max_turns"


async def ask(
    client: FactoryClient,
    base_url: str,
    api_key: str | None,
    play: Play,
    model: str,
    tools: Sequence[Mapping[str, Any]],
    sampling: Mapping[str, Any],
    notify: Notify = ignore,
) -> Reply | None:
    """One model call; waits while the gateway is paused or its engine is away, as long as the caller lets it.

    None where the conversation no longer fits the model. Only refusals that come before a dispatch are asked again: a
    reply that was lost on its way may be a step already, so that attempt is void.
    """
    pause = FIRST_PAUSE
    while True:
        try:
            reply = await client.chat(base_url, api_key, play.messages, model=model, tools=tools, **sampling)
        except (PausedError, EngineUnreachableError) as error:
            notify(f"waiting: {error.one_line()}")
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        except ContextLengthError as error:
            if not play.calls:
                raise AgentFailure(error.one_line()) from None
            play.stopped = "context"
            return None
        except AgentWorldError as error:
            raise AgentFailure(error.one_line()) from None
        else:
            play.calls += 1
            return reply
