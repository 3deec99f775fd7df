"""Anthropic Messages: request body -> canonical request, strictly.

What could change the reply is read or refused, never ignored. Marks that move between calls without saying anything
(`cache_control`, signatures, Claude Code's billing line) are dropped, as they would break the match with earlier calls.
Left out on purpose: documents, server tools. A last message of the assistant is the beginning of the reply.

Three things are known to differ from Anthropic's own service: `thinking` budgets and `output_config.effort` are hints
that open models have no switch for (an OpenAI-compatible API gets the effort as its `reasoning_effort`, `medium` where
thinking is enabled and no effort said); `is_error` of a tool result is not shown to the model, whose chat format has no
place for it; `max_tokens` larger than what the context leaves means what the context leaves.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from agentworld.dialects.chat import MAX_MESSAGES, MAX_STOPS, check_beginning, check_count
from agentworld.dialects.exchange import Request
from agentworld.dialects.fields import Fields
from agentworld.dialects.media import Images
from agentworld.dialects.messages_blocks import as_messages, order_results, read_message, text_blocks
from agentworld.errors import InvalidRequestError
from agentworld.records import Message, Sampling, Tool

DIALECT = "anthropic"

# Change nothing in what is sampled; any value is taken.
HARMLESS = frozenset(
    {"metadata", "service_tier", "inference_geo", "speed", "cache_control", "diagnostics", "anthropic_version"}
    | {"betas", "anthropic_beta"}
)
HARMLESS_IN_TOOL = frozenset({"cache_control", "eager_input_streaming"})
_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_BILLING = re.compile(r"\A\s*x-anthropic-billing-header:[^\n]*\n*")
"""A line that Claude Code puts before its system prompt; it holds a nonce in many versions."""


def parse(body: dict[str, Any], *, counting: bool = False) -> Request:
    """A decoded body as a request; InvalidRequestError names the JSON path of what is wrong.

    `counting`: the body is one of `count_tokens`, which has no `max_tokens`.
    """
    fields = Fields(body)
    model = fields.take("model", str) or ""
    given = fields.need("messages", list)
    if not given:
        raise InvalidRequestError("messages must hold at least one message", path="messages")
    check_count(given, MAX_MESSAGES, "messages")
    found: list[Message] = _system(fields)
    images = Images()
    for position, item in enumerate(given):
        found.extend(read_message(item, f"messages[{position}]", images))
    found = order_results(found)
    continue_final = found[-1].role == "assistant"
    if continue_final:
        check_beginning(found[-1], f"messages[{len(given) - 1}]")
    tools, choice, parallel = _tools(fields)
    limit = fields.integer("max_tokens", 1)
    if limit is None and not counting:
        raise InvalidRequestError("max_tokens is missing", path="max_tokens")
    kind = _thinking(fields)
    shape, effort = _output(fields)
    found = _clear_thinking(fields, found)
    sampling = Sampling(
        temperature=fields.number("temperature", 0, 100),
        top_p=fields.number("top_p", 0, 1, above=True),
        top_k=fields.integer("top_k", 0),
        max_tokens=limit,
        stop=_stops(fields),
        tool_choice=choice,
        parallel_tool_calls=parallel,
        response_format=shape,
    )
    stream = fields.take("stream", bool) or False
    fields.neutral("container")
    fields.neutral("mcp_servers", [])
    fields.finish(HARMLESS)
    return Request(
        dialect=DIALECT,
        model=model,
        messages=tuple(found),
        tools=tools,
        sampling=sampling,
        stream=stream,
        template={"enable_thinking": False} if kind == "disabled" else {},
        effort=effort or ("medium" if kind == "enabled" else None),
        fit_context=True,
        continue_final=continue_final,
        media=images.media,
    )


def _system(fields: Fields) -> list[Message]:
    """The system prompt without Claude Code's billing line."""
    value = fields.raw("system")
    texts = [value] if isinstance(value, str) else text_blocks(value, "system") if value is not None else []
    kept = [(_BILLING.sub("", text), text) for text in texts]
    return as_messages("system", [rest for rest, text in kept if rest or not text])


def _stops(fields: Fields) -> tuple[str, ...]:
    stops = fields.take("stop_sequences", list) or []
    if not all(isinstance(text, str) and text for text in stops):
        raise fields.refuse("stop_sequences", "a list of non-empty strings")
    check_count(stops, MAX_STOPS, "stop_sequences")
    return tuple(stops)


def _thinking(fields: Fields) -> str | None:
    """Whether to think. Without it, and where it is on, the default of an open model holds."""
    value = fields.take("thinking", dict)
    if value is None:
        return None
    inner = Fields(value, "thinking")
    kind = inner.need("type", str)
    if kind not in ("enabled", "adaptive", "disabled"):
        raise inner.refuse("type", "enabled, adaptive or disabled")
    inner.integer("budget_tokens", 0)
    inner.finish({"display"})
    return kind


def _clear_thinking(fields: Fields, found: list[Message]) -> list[Message]:
    """Context edits: thinking of earlier turns is cleared as asked; edits that would cut tool results are refused."""
    value = fields.take("context_management", dict)
    if value is None:
        return found
    inner = Fields(value, "context_management")
    fewest: int | None = None
    for position, item in enumerate(inner.take("edits", list) or []):
        edit = Fields(item, f"context_management.edits[{position}]")
        kind = edit.need("type", str)
        if kind != "clear_thinking_20251015":
            raise InvalidRequestError(
                f"context edits of type {kind[:60]!r} are not supported",
                path=edit.where("type"),
                hint="Leave the edit out; clear_thinking_20251015 is supported",
            )
        keep = edit.raw("keep")
        edit.finish()
        if keep == "all":
            continue
        turns = Fields(keep if keep is not None else {"type": "thinking_turns", "value": 1}, edit.where("keep"))
        if turns.need("type", str) != "thinking_turns":
            raise turns.refuse("type", "thinking_turns")
        count = turns.integer("value", 1) or 1
        fewest = count if fewest is None else min(fewest, count)
    inner.finish()
    # What the smallest number leaves is what all of them would, one after the other.
    return found if fewest is None else _keep_turns(found, fewest)


def _keep_turns(found: list[Message], count: int) -> list[Message]:
    """The messages with the thinking of only the last `count` assistant messages that have some."""
    thinking = [position for position, message in enumerate(found) if message.reasoning is not None]
    dropped = set(thinking[:-count])
    return [
        msgspec.structs.replace(message, reasoning=None) if position in dropped else message
        for position, message in enumerate(found)
    ]


def _output(fields: Fields) -> tuple[dict[str, Any] | None, str | None]:
    """A JSON schema for the reply, from `output_config.format` or the older `output_format`; and the effort."""
    effort = None
    found = fields.take("output_format", dict)
    where = "output_format"
    config = fields.take("output_config", dict)
    if config is not None:
        inner = Fields(config, "output_config")
        newer = inner.take("format", dict)
        effort = inner.take("effort", str)
        if effort is not None and effort not in _EFFORTS:
            raise inner.refuse("effort", ", ".join(_EFFORTS))
        inner.finish({"task_budget"})
        if newer is not None:
            found, where = newer, "output_config.format"
    if found is None:
        return None, effort
    inner = Fields(found, where)
    if inner.need("type", str) != "json_schema":
        raise inner.refuse("type", "json_schema")
    schema = inner.need("schema", dict)
    inner.finish()
    return {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}, effort


def _tools(fields: Fields) -> tuple[tuple[Tool, ...], Any, bool | None]:
    """Tools in OpenAI's shape, the tool choice, and whether several calls may come at once (None: unsaid)."""
    tools: list[Tool] = [
        _tool(item, f"tools[{position}]") for position, item in enumerate(fields.take("tools", list) or [])
    ]
    value = fields.take("tool_choice", dict)
    choice: Any = None
    parallel: bool | None = None
    if value is not None:
        inner = Fields(value, "tool_choice")
        kind = inner.need("type", str)
        if kind == "tool":
            name = inner.need("name", str)
            if name not in [tool["function"]["name"] for tool in tools]:
                raise InvalidRequestError(f"tool_choice names {name!r}, which is not in tools", path="tool_choice.name")
            choice = {"type": "function", "function": {"name": name}}
        elif kind in _CHOICES:
            choice = _CHOICES[kind]
        else:
            raise inner.refuse("type", "auto, any, tool or none")
        if inner.take("disable_parallel_tool_use", bool):
            parallel = False
        inner.finish()
    if choice == "required" and not tools:
        raise InvalidRequestError("tool_choice is any, but there are no tools", path="tools")
    return tuple(tools), choice if tools else None, parallel if tools else None


def _tool(item: Any, path: str) -> Tool:
    fields = Fields(item, path)
    kind = fields.take("type", str) or "custom"
    if kind != "custom":
        raise InvalidRequestError(
            f"tools of type {kind[:60]!r} run at Anthropic and are not supported",
            path=f"{path}.type",
            hint="Send tools with an input_schema",
        )
    function: dict[str, Any] = {"name": fields.need("name", str)}
    description = fields.take("description", str)
    if description is not None:
        function["description"] = description
    function["parameters"] = fields.need("input_schema", dict)
    for name, values in (("strict", (False,)), ("defer_loading", (False,)), ("input_examples", ([],))):
        fields.neutral(name, *values)
    callers = fields.take("allowed_callers", list)
    if callers is not None and "direct" not in callers:
        raise fields.refuse("allowed_callers", 'a list with "direct"')
    fields.finish(HARMLESS_IN_TOOL)
    return {"type": "function", "function": function}
