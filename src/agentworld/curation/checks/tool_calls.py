"""Whether the calls of a reply can be carried out: arguments, names, schemas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentworld.curation.checks.finding import Found
from agentworld.curation.checks.private_rules import excerpt
from agentworld.curation.checks.reading import Run, Turn
from agentworld.curation.checks.registry import check
from agentworld.curation.checks.replies import CALL_TAGS
from agentworld.curation.checks.schema import fault
from agentworld.curation.checks.settings import CheckContext


@check(
    "bad_tool_call",
    scope="step",
    values="`arguments`, `unknown`, `schema` or `unparsed`",
    says="A call of the reply cannot be carried out as it stands: its arguments are no JSON object, its tool was not "
    "offered, the arguments break the tool's schema, or the call stands in the text, unparsed.",
    fails="Of schemas, `$ref`, `anyOf` and their like are not looked at. Tools that a server knows without being told "
    "in the request are taken for unknown where other tools were offered. A reply that explains the syntax of calls is "
    "taken for an unparsed one.",
)
def bad_tool_call(turn: Turn, run: Run, context: CheckContext) -> Iterator[Found]:
    reply = turn.reply
    if reply is None:
        return
    if reply.tool_calls:
        tools = offered(turn.step.tools)
        for position, call in enumerate(turn.calls):
            value = detail = None
            if tools and call.name not in tools:
                value, detail = "unknown", f"{len(tools)} tools were offered"
            elif call.malformed or not isinstance(call.arguments, dict):
                value, detail = "arguments", "not JSON" if call.malformed else "JSON, but no object"
            elif tools:
                detail = fault(call.arguments, tools[call.name])
                value = None if detail is None else "schema"
            if value is not None:
                evidence = {
                    "step": turn.step.step_id,
                    "message": "reply",
                    "call": position,
                    "tool": excerpt(call.name),
                    "what": excerpt(detail or ""),
                    "excerpt": excerpt(call.raw),
                }
                yield Found(value, evidence)
        return
    text = reply.text
    if "<" in text or "[" in text:
        for tag in CALL_TAGS:
            at = text.find(tag)
            if at >= 0:
                yield Found("unparsed", {"step": turn.step.step_id, "message": "reply", "excerpt": excerpt(text, at)})
                return


def offered(tools: list[dict[str, Any]] | None) -> dict[str, Any]:
    """The schema of each tool's arguments by the tool's name."""
    found: dict[str, Any] = {}
    for tool in tools or ():
        function = tool.get("function", tool) if isinstance(tool, dict) else None
        if isinstance(function, dict) and isinstance(function.get("name"), str):
            found[function["name"]] = function.get("parameters")
    return found
