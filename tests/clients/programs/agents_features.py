"""OpenAI Agents SDK: a streamed run, a hand-over to another agent, an agent as a tool, an answer by a schema."""

import asyncio
import json
import sys

from pydantic import BaseModel

from agents import Agent, Runner, function_tool, set_tracing_disabled

set_tracing_disabled(True)


class Answer(BaseModel):
    colour: str


@function_tool
def look(place: str) -> str:
    """Looks."""
    return place + " is blue"


async def main():
    eye = Agent(name="eye", instructions="You are the eye.", handoff_description="Sees.", model="policy", tools=[look])
    if sys.argv[1] == "streamed":
        run = Runner.run_streamed(eye, "What colour?")
        kinds = [event.type async for event in run.stream_events()]
        return [run.final_output, "raw_response_event" in kinds]
    if sys.argv[1] == "hand over":
        head = Agent(name="head", instructions="You are the head.", model="policy", handoffs=[eye])
        run = await Runner.run(head, "What colour?")
        return [run.final_output, run.last_agent.name]
    if sys.argv[1] == "agent as a tool":
        tool = eye.as_tool(tool_name="ask_eye", tool_description="Asks the eye.")
        head = Agent(name="head", instructions="You are the head.", model="policy", tools=[tool])
        return (await Runner.run(head, "What colour?")).final_output
    painter = Agent(name="painter", instructions="Name a colour.", model="policy", output_type=Answer)
    return (await Runner.run(painter, "What colour?")).final_output.model_dump()


print(json.dumps(asyncio.run(main())))
