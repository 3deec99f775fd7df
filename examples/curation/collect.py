"""Raw calls to curate: seven rollouts of two sums, by an agent with a calculator, through the gateway into a pool.

    python collect.py [POOL]          # default sqlite:///agentworld.db; see docs/curation.md for what comes next

The model is scripted, so that everybody gets the same calls without a network: it is right, is right in the same words
again, is wrong, is cut at its limit, and goes round in a circle. Left out: a real engine (`serve --upstream`).
"""

import asyncio
import json
import logging
import sys

import structlog

import agentworld as aw
from agentworld.api.app import create_app
from agentworld.config import ModelSettings, ServeSettings
from agentworld.testing import ScriptedEngine, ScriptedReply
from agentworld.testing.app_server import AppServer

NUMBER = {"type": "integer"}
ADD = {"type": "object", "properties": {"a": NUMBER, "b": NUMBER}, "required": ["a", "b"]}
TOOLS = [{"type": "function", "function": {"name": "add", "description": "a + b", "parameters": ADD}}]
TASKS = {
    "long": {"task_id": "long", "prompt": "What is 17 + 25 + 9?", "reference": "51"},
    "short": {"task_id": "short", "prompt": "What is 8 + 4?", "reference": "12"},
}


def call(a: int, b: int) -> str:
    """What the model writes to add two numbers."""
    return f"<tool_call>\n{json.dumps({'name': 'add', 'arguments': {'a': a, 'b': b}})}\n</tool_call>"


ROLLOUTS = [
    ("long", [call(17, 25), call(42, 9), "The answer is 51"]),
    ("long", [call(17, 25), call(42, 9), "The answer is 51"]),
    ("long", [call(17, 25), "The answer is 52"]),
    ("long", [call(17, 25), ScriptedReply(text="Let me think about", finish_reason="length")]),
    ("long", [call(17, 25), call(17, 25), call(17, 25), "So the answer is 51"]),
    ("short", [call(8, 4), "The answer is 12"]),
    ("short", ["That is easy: the answer is 12"]),
]


def agent(url: str) -> None:
    """All rollouts, one after the other: each asks the model until that calls no more tools."""
    factory = aw.connect(url)
    sizes = {name: sum(each == name for each, _ in ROLLOUTS) for name in TASKS}
    for number, (name, _) in enumerate(ROLLOUTS, 1):
        task = TASKS[name]
        with factory.trajectory(
            task=task, group=f"sums-{name}", group_size=sizes[name], trajectory_id=f"sum-{number}", agent="adder"
        ) as run:
            messages = [{"role": "user", "content": task["prompt"]}]
            while True:
                reply = run.chat(messages, tools=TOOLS).message
                messages.append(reply)
                if not reply.tool_calls:
                    break
                for asked in reply.tool_calls:
                    numbers = json.loads(asked.function.arguments)
                    said = str(numbers["a"] + numbers["b"])
                    messages.append({"role": "tool", "tool_call_id": asked.id, "content": said})
        print(f"sum-{number}: {reply.text}")


async def collect(pool_url: str) -> None:
    """Serve the gateway in front of the scripted model while the agent works."""
    replies = [reply for _, said in ROLLOUTS for reply in said]
    with ScriptedEngine(lambda request: replies.pop(0)) as engine, aw.open_pool(pool_url) as pool:
        model = ModelSettings(name="scripted", upstream=engine.url, driver="builtin", tokens="engine")
        async with AppServer(create_app(ServeSettings(models=(model,)), pool.store)) as server:
            await asyncio.to_thread(agent, server.url)


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    asyncio.run(collect(sys.argv[1] if len(sys.argv) > 1 else "sqlite:///agentworld.db"))
