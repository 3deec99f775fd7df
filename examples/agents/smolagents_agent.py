"""smolagents as an agent of `agentworld run`: its tool-calling agent, the task's tools over HTTP, the answer out.

Each of its prompts is written anew, so its steps stand side by side and train as single turns.
"""

import json
import os
import sys
import urllib.request

from smolagents import LogLevel, OpenAIModel, Tool, ToolCallingAgent

TASK = json.load(sys.stdin)
SAMPLING = {name: value for name, value in TASK["sampling"].items() if name in ("temperature", "top_p", "max_tokens")}


def act(name, arguments):
    """Run a tool in the task's environment; what it says."""
    body = json.dumps({"name": name, "arguments": json.dumps(arguments)}).encode()
    request = urllib.request.Request(TASK["environment_url"] + "/step", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["content"]


class Remote(Tool):
    """A tool of the task's environment."""

    name, description, inputs, output_type = "remote", "", {}, "string"
    skip_forward_signature_validation = True

    def __init__(self, function):
        self.name, self.description = function["name"], function.get("description", "")
        required = function["parameters"].get("required", [])
        self.inputs = {
            name: {"type": each.get("type", "any"), "description": each.get("description", name)}
            | ({} if name in required else {"nullable": True})
            for name, each in function["parameters"]["properties"].items()
        }
        super().__init__()

    def forward(self, **arguments):
        return act(self.name, arguments)


key = os.environ["OPENAI_API_KEY"]
model = OpenAIModel(TASK["model"], api_base=os.environ["OPENAI_BASE_URL"], api_key=key, **SAMPLING)
tools = [Remote(each["function"]) for each in TASK["tools"]]
agent = ToolCallingAgent(tools=tools, model=model, max_steps=TASK["max_turns"], verbosity_level=LogLevel.OFF)
print(agent.run(TASK["prompt"]))
