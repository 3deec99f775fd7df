"""pydantic-ai: an answer by a demanded call, one by a schema, a streamed run, Anthropic's API and Responses."""

import asyncio
import json
import sys

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput


class Answer(BaseModel):
    colour: str


def looking(model, **more):
    agent = Agent(model, instructions="Be brief.", **more)

    @agent.tool_plain
    def look(place: str) -> str:
        """Looks."""
        return place + " is blue"

    return agent


async def streamed():
    async with looking("openai-chat:policy").run_stream("What colour?") as run:
        return [piece async for piece in run.stream_text(delta=True, debounce_by=None)]


PARTS = {
    "demanded": lambda: looking("openai-chat:policy", output_type=Answer).run_sync("What colour?").output.model_dump(),
    "schema": lambda: (
        looking("openai-chat:policy", output_type=NativeOutput(Answer)).run_sync("What colour?").output.model_dump()
    ),
    "streamed": lambda: asyncio.run(streamed()),
    "anthropic": lambda: looking("anthropic:policy").run_sync("What colour?").output,
    "responses": lambda: looking("openai-responses:policy").run_sync("What colour?").output,
}
print(json.dumps(PARTS[sys.argv[1]]()))
