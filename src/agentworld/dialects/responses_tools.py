"""OpenAI Responses: tools -> the functions that models know, and the names back.

A custom tool (free text in, such as Codex's `apply_patch`) is a function with one string, `input`. A tool of a
namespace is a function named `NAMESPACE__NAME`. A grammar of a custom tool is told to the model in the description, as
no engine holds a function's argument to it. Tools that run at OpenAI are refused.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from agentworld.dialects.fields import Fields
from agentworld.errors import InvalidRequestError
from agentworld.records import Tool

INPUT = "input"
Named = dict[str, list[str]]
"""Function name -> what the caller knows it by: kind (function or custom), namespace ("" for none), name. Plain
functions are not in it."""
_HINTS = {
    "web_search": 'Leave it out; in Codex set web_search = "disabled"',
    "web_search_preview": "Leave it out",
    "local_shell": "Send a function that takes the command",
    "shell": "Send a function that takes the command",
    "apply_patch": "Send it as a custom tool",
}


def flat_name(namespace: str, name: str) -> str:
    """The name of the function that a tool becomes."""
    return f"{namespace}__{name}" if namespace else name


def read_tools(given: list[tuple[Any, str]]) -> tuple[tuple[Tool, ...], Named]:
    """The functions, and the names of those that are not plain ones; `given`: tools with their JSON paths."""
    tools: list[Tool] = []
    named: Named = {}
    for item, path in given:
        _read(Fields(item, path), "", "", tools, named)
    seen: set[str] = set()
    for name in (tool["function"]["name"] for tool in tools) if named else ():
        if name in seen:
            raise InvalidRequestError(f"two tools come out as {name[:100]!r}", path="tools", hint="Rename one")
        seen.add(name)
    return tuple(tools), named


def _read(tool: Fields, namespace: str, about: str, tools: list[Tool], named: Named) -> None:
    kind = tool.need("type", str)
    if kind == "namespace" and not namespace:
        within, says = tool.need("name", str), tool.take("description", str) or ""
        for position, item in enumerate(tool.need("tools", list)):
            _read(Fields(item, f"{tool.where('tools')}[{position}]"), within, says, tools, named)
        tool.finish()
        return
    if kind not in ("function", "custom"):
        raise InvalidRequestError(
            f"tools of type {kind[:60]!r} run at OpenAI and are not supported",
            path=tool.where("type"),
            hint=_HINTS.get(kind, "Send tools of type function or custom"),
        )
    name = tool.need("name", str)
    flat = flat_name(namespace, name)
    description = tool.take("description", str)
    if about:
        description = f"{about}\n{description or ''}".rstrip("\n")
    function: dict[str, Any] = {"name": flat}
    if kind == "function":
        if description is not None:
            function["description"] = description
        parameters = tool.take("parameters", dict)
        if parameters is not None:
            function["parameters"] = parameters
        if tool.take("strict", bool):
            function["strict"] = True
        tool.neutral("output_schema")
    else:
        grammar = _grammar(tool)
        if description or grammar:
            function["description"] = "\n\n".join(text for text in (description, grammar) if text)
        function["parameters"] = {
            "type": "object",
            "properties": {INPUT: {"type": "string"}},
            "required": [INPUT],
            "additionalProperties": False,
        }
    for unused in ("async", "defer_loading"):
        tool.neutral(unused, False)
    callers = tool.take("allowed_callers", list)
    if callers is not None and "direct" not in callers:
        raise tool.refuse("allowed_callers", 'a list with "direct"')
    tool.finish()
    tools.append({"type": "function", "function": function})
    if kind == "custom" or namespace:
        named[flat] = [kind, namespace, name]


def _grammar(tool: Fields) -> str:
    """What the format of a custom tool says to the model."""
    value = tool.take("format", dict)
    if value is None:
        return ""
    inner = Fields(value, tool.where("format"))
    kind = inner.need("type", str)
    if kind == "text":
        inner.finish()
        return ""
    if kind != "grammar":
        raise inner.refuse("type", "text or grammar")
    syntax, definition = inner.need("syntax", str), inner.need("definition", str)
    inner.finish()
    return f"The input must follow this {syntax} grammar:\n{definition}"


def read_choice(fields: Fields, tools: tuple[Tool, ...]) -> Any:
    """The tool choice in OpenAI chat's shape."""
    choice = fields.raw("tool_choice")
    if isinstance(choice, dict):
        inner = Fields(choice, "tool_choice")
        kind = inner.need("type", str)
        if kind not in ("function", "custom"):
            raise InvalidRequestError(
                f"a tool choice of type {kind[:60]!r} is not supported",
                path="tool_choice.type",
                hint="Use auto, none, required or a function of tools; to allow some tools only, send only those",
            )
        name = flat_name(inner.take("namespace", str) or "", inner.need("name", str))
        inner.finish()
        if name not in [tool["function"]["name"] for tool in tools]:
            raise InvalidRequestError(f"tool_choice names {name[:100]!r}, which is not in tools", path="tool_choice")
        return {"type": "function", "function": {"name": name}}
    if choice not in (None, "auto", "none", "required"):
        raise fields.refuse("tool_choice", "auto, none, required or a function of tools")
    if choice == "required" and not tools:
        raise InvalidRequestError("tool_choice is required, but there are no tools", path="tools")
    return choice if tools else None


def written_input(text: str) -> str:
    """The arguments of the function that a custom tool is, for its input."""
    # Spaced as the templates of most models write it, so that a reply sent back renders as it was sampled.
    return json.dumps({INPUT: text}, ensure_ascii=False)


def read_input(arguments: str) -> str | None:
    """The input in the arguments that were sampled; None where they hold anything else."""
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    if not isinstance(value, dict) or list(value) != [INPUT] or not isinstance(value[INPUT], str):
        return None
    found: str = value[INPUT]
    return found
