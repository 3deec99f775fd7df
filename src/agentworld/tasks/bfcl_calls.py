"""Calls against the possible answers of BFCL: its rules for names and values, written anew. Pure.

A call is right where it has the function's name, every required parameter, none that the function does not have, and
of each a value that the answer lists; an optional one may be left out where the answer lists "". Texts are compared
without case, spaces and the marks ,./-_*^ and with one kind of quotes; a whole number stands for its float, and true
for no number. Several calls may come in any order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agentworld.records import Tool
from agentworld.tasks.base import Score

# Types that BFCL has beside those of JSON schemas.
_TYPES = {"dict": "object", "float": "number", "tuple": "array", "list": "array", "any": None, "String": "string"}
_IGNORED = re.compile(r"[ ,./\-_*^]")


class Call(NamedTuple):
    """A call as the policy made it; `arguments` is None where they are no JSON object."""

    name: str
    arguments: dict[str, Any] | None


def as_tool(function: Mapping[str, Any]) -> Tool:
    """A function of BFCL as a tool of OpenAI chat, whose names have no dots."""
    described = {
        "name": tool_name(function["name"]),
        "description": function.get("description", ""),
        "parameters": _schema(function.get("parameters") or {"type": "dict", "properties": {}}),
    }
    return {"type": "function", "function": described}


def tool_name(name: str) -> str:
    """A function's name as tools may be called."""
    return name.replace(".", "_")


def call_from(name: str, arguments: str) -> Call:
    """The call of a tool with the raw text of its arguments."""
    try:
        given = json.loads(arguments) if arguments else {}
    except ValueError:
        given = None
    return Call(name, given if isinstance(given, dict) else None)


def calls_of_text(text: str | None) -> list[Call]:
    """Calls that are written as JSON, one object or a list; none where the text is something else."""
    try:
        given = json.loads(text or "")
    except ValueError:
        return []
    found = []
    for each in given if isinstance(given, list) else [given]:
        if isinstance(each, dict) and isinstance(each.get("name"), str):
            arguments = each.get("arguments", {})
            found.append(Call(tool_name(each["name"]), arguments if isinstance(arguments, dict) else None))
    return found


def judge(calls: Sequence[Call], reference: Mapping[str, Any], tools: Sequence[Tool]) -> Score:
    """1 where the calls are right. `reference`: {"calls": possible answers}, or {"any": whether to call at all}."""
    details: dict[str, Any] = {"calls": [call._asdict() for call in calls]}
    if "any" in reference:
        return Score(float(bool(calls) == reference["any"]), details)
    left = list(reference["calls"])
    if len(calls) != len(left):
        return Score(0.0, {**details, "wrong": f"{len(calls)} calls, not {len(left)}"})
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    for call in calls:
        why = [_wrong(call, one, schemas) for one in left]
        if None not in why:
            return Score(0.0, {**details, "wrong": why[0]})
        left.pop(why.index(None))
    return Score(1.0, details)


def _wrong(call: Call, possible: Mapping[str, Any], schemas: Mapping[str, Any]) -> str | None:
    """What is wrong with a call, measured by one possible answer; None where nothing is."""
    ((name, values),) = possible.items()
    if call.name != tool_name(name):
        return f"{call.name} is not {tool_name(name)}"
    if call.arguments is None:
        return "the arguments are no JSON object"
    schema = schemas.get(call.name, {})
    for parameter in schema.get("required", ()):
        if parameter not in call.arguments:
            return f"{parameter} is missing"
    for parameter, value in call.arguments.items():
        if parameter not in values or parameter not in schema.get("properties", {}):
            return f"{parameter} is unexpected"
        if not any(_same(value, one) for one in values[parameter]):
            return f"{parameter} has another value"
    for parameter, allowed in values.items():
        if parameter not in call.arguments and "" not in allowed:
            return f"{parameter} is missing"
    return None


def _same(value: Any, possible: Any) -> bool:
    """Whether a value is the possible one; in objects each key has a list of possible values."""
    if isinstance(possible, str):
        return isinstance(value, str) and _standard(value) == _standard(possible)
    if isinstance(possible, bool) or isinstance(value, bool):
        return value is possible
    if isinstance(possible, int | float):
        return isinstance(value, int | float) and float(value) == float(possible)
    if isinstance(possible, list):
        return isinstance(value, list) and len(value) == len(possible) and all(map(_same, value, possible))
    if isinstance(possible, dict):
        if not isinstance(value, dict) or not value.keys() <= possible.keys():
            return False
        return all(
            any(_same(value[key], one) for one in allowed) if key in value else "" in allowed
            for key, allowed in ((key, _listed(each)) for key, each in possible.items())
        )
    return bool(value == possible)


def _listed(allowed: Any) -> list[Any]:
    return allowed if isinstance(allowed, list) else [allowed]


def _standard(text: str) -> str:
    return _IGNORED.sub("", text).lower().replace("'", '"')


def _schema(given: Any) -> Any:
    """A schema with the types that JSON schemas know."""
    if isinstance(given, list):
        return [_schema(each) for each in given]
    if not isinstance(given, dict):
        return given
    made = {}
    for key, value in given.items():
        if key == "type" and isinstance(value, str):
            value = _TYPES.get(value, value)
            if value is None:
                continue  # any type
            made[key] = value
        elif key == "optional" and isinstance(value, bool):
            continue  # said by `required`
        else:
            made[key] = _schema(value)
    return made
