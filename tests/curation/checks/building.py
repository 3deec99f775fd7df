"""Trajectories as tests write them down: a list of what was said, from which each step's prompt follows."""

import msgspec

from agentworld.records import BatchTrajectory, FunctionCall, Message, Step, ToolCall, Trajectory

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "search",
            "parameters": {
                "type": "object",
                "properties": {
                    "query": {"type": "string"},
                    "limit": {"type": "integer", "minimum": 1},
                    "order": {"type": "string", "enum": ["new", "old"]},
                },
                "required": ["query"],
                "additionalProperties": False,
            },
        },
    },
    {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}},
    {"type": "function", "function": {"name": "write_file", "parameters": {"type": "object"}}},
]


def user(text):
    return Message(role="user", content=text)


def tool(text):
    return Message(role="tool", content=text, tool_call_id="call_0")


def says(text, reasoning=None):
    return Message(role="assistant", content=text, reasoning=reasoning)


def calls(*named, text=None):
    """`("search", {"query": "x"})`, with text for arguments that are given raw."""
    made = [
        ToolCall(f"call_{at}", FunctionCall(name, raw if isinstance(raw, str) else msgspec.json.encode(raw).decode()))
        for at, (name, raw) in enumerate(named)
    ]
    return Message(role="assistant", content=text, tool_calls=tuple(made))


def run(*said, step=None, tools=TOOLS, name="t1", **trajectory):
    """A trajectory of one step for each assistant's message in `said`; `step`: fields of all its steps."""
    steps, prompt = [], []
    for message in said:
        if message.role == "assistant":
            steps.append(
                Step(
                    step_id=f"{name}-{len(steps)}",
                    trajectory_id=name,
                    parent_step_id=steps[-1].step_id if steps else None,
                    prompt_messages=list(prompt),
                    response_message=message,
                    tools=tools,
                    **{"finish_reason": "stop", **(step or {})},
                )
            )
        prompt.append(message)
    record = Trajectory(trajectory_id=name, **{"status": "finished", "reward": 1.0, **trajectory})
    return BatchTrajectory(trajectory=record, steps=steps)
