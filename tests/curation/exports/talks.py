"""Trajectories with tools, branches, rewards and feedback, and versions of them."""

from __future__ import annotations

from agentworld.curation.datasets.selecting import create_dataset
from agentworld.records import (
    FunctionCall,
    Message,
    NewTrajectory,
    Policy,
    Selection,
    Splits,
    Step,
    ToolCall,
)

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a town",
        "parameters": {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]},
    },
}
CLOCK = {
    "type": "function",
    "function": {
        "name": "clock",
        "description": "The time",
        "parameters": {"type": "object", "properties": {"zone": {"type": "integer"}}},
    },
}


def user(text):
    return Message(role="user", content=text)


def says(text, reasoning=None, call=None):
    """A reply; `call`: the arguments of a call of the weather."""
    calls = () if call is None else (ToolCall(id="c1", function=FunctionCall(name="weather", arguments=call)),)
    return Message(role="assistant", content=text, reasoning=reasoning, tool_calls=calls)


def result(text):
    return Message(role="tool", content=text, tool_call_id="c1")


def step(name, number, prompt, reply, **fields):
    fields = {"policy": Policy("m", "r", 1), "tools": [WEATHER], **fields}
    return Step(
        step_id=f"{name}-{number}",
        trajectory_id=name,
        prompt_messages=list(prompt),
        response_message=reply,
        created_at=1000.0 + number,
        **fields,
    )


def asked(town):
    """The turns of one run with a tool: two replies on one branch."""
    first = [Message(role="system", content="Be short."), user(f"How is the weather in {town}?")]
    call = says("", f"I look up {town}.", f'{{"town": "{town}"}}')
    second = [*first, call, result("rain")]
    return first, call, second, says(f"It rains in {town}.", "The tool says rain.")


def put(pool, name, steps, *, reward=1.0, status="finished", **new):
    """A trajectory of these steps, ended with its reward."""
    pool.create_trajectory(NewTrajectory(trajectory_id=name, **new))
    outcomes = pool.append_steps(steps)
    assert [one.outcome for one in outcomes] == ["stored"] * len(steps), outcomes
    pool.complete_trajectory(name, status, reward)


def put_weather(pool, name="t1", town="Ulm", **new):
    """One run with a tool; without ids."""
    first, call, second, answer = asked(town)
    steps = [step(name, 0, first, call), step(name, 1, second, answer, parent_step_id=f"{name}-0")]
    put(pool, name, steps, **new)


def frozen(pool, name="good", **selection):
    """A version of everything; in one split unless `splits` says otherwise."""
    selection.setdefault("splits", Splits(near_duplicates=None))
    return create_dataset(pool, name, Selection(**selection))
