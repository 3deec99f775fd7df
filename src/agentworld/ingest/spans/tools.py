"""Definitions of tools in the spelling of any API, as OpenAI's chat has them."""

from __future__ import annotations

from typing import Any

from agentworld.ingest.spans.loose import text, unpacked
from agentworld.ingest.spans.node import Say
from agentworld.records import Tool

_SCHEMAS = (
    "parameters",
    "input_schema",
    "inputSchema",
    "parametersJsonSchema",
    "parameters_json_schema",
    "args_schema",
)
_TYPES = {"OBJECT", "STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "NULL"}


def read_tools(value: Any, place: str, say: Say) -> list[Tool]:
    """The tools of a call; one that has no name is said and left out."""
    value = unpacked(value)
    if isinstance(value, dict):
        # Vercel has them by name; others hold a list, or one of them.
        if isinstance(value.get("tools"), list):
            value = value["tools"]
        elif "name" in value or "function" in value:
            value = [value]
        else:
            value = [{"name": name, **each} if isinstance(each, dict) else each for name, each in value.items()]
    if not isinstance(value, list):
        if value is not None:
            say(place, "tools are a list")
        return []
    found: list[Tool] = []
    for position, each in enumerate(value):
        each = unpacked(each)
        if isinstance(each, dict) and isinstance(
            declared := each.get("function_declarations") or each.get("functionDeclarations"), list
        ):
            found += read_tools(declared, f"{place}[{position}]", say)
            continue
        tool = _tool(each)
        if tool is None:
            say(f"{place}[{position}]", "the tool has no name")
        else:
            found.append(tool)
    return found


def _tool(given: Any) -> Tool | None:
    if not isinstance(given, dict):
        return None
    if isinstance(given.get("tool"), dict):
        given = given["tool"]
    if (schema := unpacked(given.get("json_schema"))) and isinstance(schema, dict):
        given = {"name": given.get("name"), "description": given.get("description"), **schema}
    inner = unpacked(given.get("function"))
    if isinstance(inner, dict):
        given = inner
    name = text(given.get("name")) or text(given.get("toolName"))
    if name is None:
        return None
    function: dict[str, Any] = {"name": name}
    if isinstance(given.get("description"), str):
        function["description"] = given["description"]
    for key in _SCHEMAS:
        parameters = unpacked(given.get(key))
        if isinstance(parameters, dict):
            function["parameters"] = _lower(parameters)
            break
    if isinstance(given.get("strict"), bool):
        function["strict"] = given["strict"]
    return {"type": "function", "function": function}


def _lower(schema: Any, depth: int = 0) -> Any:
    """A schema with the names of types as JSON Schema has them; Gemini writes them in capitals."""
    if depth > 40:
        return schema
    if isinstance(schema, list):
        return [_lower(each, depth + 1) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: value.lower() if key == "type" and isinstance(value, str) and value in _TYPES else _lower(value, depth + 1)
        for key, value in schema.items()
    }
