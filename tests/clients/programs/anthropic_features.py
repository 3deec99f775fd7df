"""The anthropic package: streams with thinking and calls, conversations side by side, schemas. Prints what it saw."""

import asyncio
import json
import sys

from anthropic import Anthropic, AsyncAnthropic
from pydantic import BaseModel

SCHEMA = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
LOOK = {"name": "look", "description": "Looks.", "input_schema": SCHEMA}
COMMON = {"model": "policy", "max_tokens": 1000}


class Answer(BaseModel):
    colour: str
    places: list[str]


def streamed(client):
    system = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    messages, seen = [{"role": "user", "content": "What colour?"}], []
    for _ in range(2):
        with client.messages.stream(**COMMON, system=system, messages=messages, tools=[LOOK]) as stream:
            text = "".join(stream.text_stream)
            message = stream.get_final_message()
        seen.append([text, [block.type for block in message.content], message.stop_reason])
        messages.append({"role": "assistant", "content": message.content})
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": block.input["place"] + " is blue"}
            for block in message.content
            if block.type == "tool_use"
        ]
        if results:
            messages.append({"role": "user", "content": results})
    return seen


async def side_by_side():
    async with AsyncAnthropic() as client:

        async def talk(number):
            messages = [{"role": "user", "content": f"Conversation {number}."}]
            for _ in range(3):
                reply = await client.messages.create(**COMMON, messages=messages)
                messages += [
                    {"role": "assistant", "content": reply.content},
                    {"role": "user", "content": "Go on."},
                ]
            return messages[-2]["content"][-1].text

        return await asyncio.gather(*(talk(number) for number in range(4)))


def structured(client):
    asked = [{"role": "user", "content": "What colour?"}]
    return client.messages.parse(**COMMON, messages=asked, output_format=Answer).parsed_output.model_dump()


def demanded(client):
    reply = client.messages.create(
        **COMMON,
        messages=[{"role": "user", "content": "What colour?"}],
        tools=[LOOK],
        tool_choice={"type": "tool", "name": "look"},
    )
    return [[block.name, block.input] for block in reply.content if block.type == "tool_use"]


def counted(client):
    return client.messages.count_tokens(
        model="policy", messages=[{"role": "user", "content": "What colour?"}]
    ).input_tokens


PARTS = {
    "streamed": lambda: streamed(Anthropic()),
    "side by side": lambda: asyncio.run(side_by_side()),
    "structured": lambda: structured(Anthropic()),
    "demanded": lambda: demanded(Anthropic()),
    "counted": lambda: counted(Anthropic()),
}
print(json.dumps(PARTS[sys.argv[1]]()))
