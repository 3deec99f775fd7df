"""The openai package: streams with calls, conversations side by side, schemas, Responses. Prints what it saw."""

import asyncio
import json
import sys

from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

PARAMETERS = {
    "type": "object",
    "properties": {"place": {"type": "string"}},
    "required": ["place"],
    "additionalProperties": False,
}
LOOK = {"name": "look", "description": "Looks.", "parameters": PARAMETERS, "strict": True}


class Answer(BaseModel):
    colour: str
    places: list[str]


def calls_of(message):
    return [[call.function.name, json.loads(call.function.arguments)] for call in message.tool_calls or []]


def results_of(message):
    return [
        {"role": "tool", "tool_call_id": call.id, "content": json.loads(call.function.arguments)["place"] + " is blue"}
        for call in message.tool_calls
    ]


def streamed(client):
    messages = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "What colour?"}]
    tools, seen = [{"type": "function", "function": LOOK}], []
    for _ in range(2):
        text, events = "", set()
        with client.chat.completions.stream(model="policy", messages=messages, tools=tools) as stream:
            for event in stream:
                events.add(event.type)
                if event.type == "content.delta":
                    text += event.delta
            message = stream.get_final_completion().choices[0].message
        assert text == (message.content or "")
        seen.append([message.content, calls_of(message), sorted(events)])
        messages.append(message)
        messages += results_of(message) if message.tool_calls else []
    return seen


async def side_by_side():
    async with AsyncOpenAI() as client:

        async def talk(number):
            messages = [{"role": "user", "content": f"Conversation {number}."}]
            for _ in range(3):
                reply = await client.chat.completions.create(model="policy", messages=messages)
                messages += [reply.choices[0].message, {"role": "user", "content": "Go on."}]
            return messages[-2].content

        return await asyncio.gather(*(talk(number) for number in range(4)))


def structured(client):
    asked = [{"role": "user", "content": "What colour?"}]
    chat = client.chat.completions.parse(model="policy", messages=asked, response_format=Answer)
    response = client.responses.parse(model="policy", input="What colour?", text_format=Answer)
    return [chat.choices[0].message.parsed.model_dump(), response.output_parsed.model_dump()]


def demanded(client):
    reply = client.chat.completions.create(
        model="policy",
        messages=[{"role": "user", "content": "What colour?"}],
        tools=[{"type": "function", "function": LOOK}],
        tool_choice={"type": "function", "function": {"name": "look"}},
    )
    return calls_of(reply.choices[0].message)


def responses(client):
    tools = [{"type": "function", **LOOK}]
    first = client.responses.create(model="policy", instructions="Be brief.", input="What colour?", tools=tools)
    calls = [item for item in first.output if item.type == "function_call"]
    results = [{"type": "function_call_output", "call_id": call.call_id, "output": "blue"} for call in calls]
    events = []
    with client.responses.stream(
        model="policy", instructions="Be brief.", input=results, previous_response_id=first.id, tools=tools
    ) as stream:
        events = [event.type for event in stream]
        last = stream.get_final_response()
    return [[call.name for call in calls], last.output_text, events[0], events[-1]]


def completions(client):
    reply = client.completions.create(model="policy", prompt="Once upon", max_tokens=20)
    return reply.choices[0].text


PARTS = {
    "streamed": lambda: streamed(OpenAI()),
    "side by side": lambda: asyncio.run(side_by_side()),
    "structured": lambda: structured(OpenAI()),
    "demanded": lambda: demanded(OpenAI()),
    "responses": lambda: responses(OpenAI()),
    "completions": lambda: completions(OpenAI()),
}
print(json.dumps(PARTS[sys.argv[1]]()))
