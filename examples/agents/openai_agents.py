"""OpenAI Agents SDK as an agent of `agentworld run`: the task on stdin, its tools over HTTP, the answer on stdout."""

import asyncio
import json
import sys
import urllib.request

from agents import Agent, FunctionTool, ModelSettings, Runner, set_tracing_disabled

set_tracing_disabled(True)  # It would send what agents do to OpenAI.
TASK = json.load(sys.stdin)


def act(name, arguments):
    """Run a tool in the task's environment; what it says."""
    body = json.dumps({"name": name, "arguments": arguments}).encode()
    request = urllib.request.Request(TASK["environment_url"] + "/step", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["content"]


def tool(given):
    async def call(context, arguments):
        return await asyncio.to_thread(act, name, arguments)

    name = given["function"]["name"]
    return FunctionTool(name, given["function"].get("description", ""), given["function"]["parameters"], call, False)


sampling = {name: value for name, value in TASK["sampling"].items() if name in ("temperature", "top_p", "max_tokens")}
agent = Agent(
    name="solver",
    model=TASK["model"],
    tools=[tool(each) for each in TASK["tools"]],
    model_settings=ModelSettings(**sampling),
)
print(Runner.run_sync(agent, TASK["messages"], max_turns=TASK["max_turns"]).final_output)
