"""OpenAI Responses: request body -> canonical request, strictly.

What could change the reply is read or refused, never ignored. What a body refers to (`previous_response_id`, item
references) is in the pool: `wanted` says what to load, and `parse` is given it. As with OpenAI, the conversation goes
on from there with this call's own instructions and tools.
Left out on purpose: tools that run at OpenAI, background calls, conversations and prompts that OpenAI keeps, and
truncation.

Three things are known to differ from OpenAI's own service: everything is on record whatever `store` says, as that is
what the gateway is for; reasoning comes back as its text, whole in the `summary` where one is asked for and in the
`content` else; `encrypted_content` is that text, wrapped. An effort of reasoning reaches the chat template as its
variable `reasoning_effort`, `none` as `enable_thinking` false, and a verbosity as `verbosity`; a renderer that has no
such variable refuses it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from agentworld.dialects.chat import (
    EFFORTS,
    MAX_MESSAGES,
    MAX_TOP_LOGPROBS,
    VERBOSITIES,
    check_count,
    read_sampling,
    read_template,
    with_thinking,
)
from agentworld.dialects.exchange import Request, Run
from agentworld.dialects.fields import Fields
from agentworld.dialects.media import Images
from agentworld.dialects.responses_items import Tools, exchange_of, read_items
from agentworld.dialects.responses_output import output_items
from agentworld.dialects.responses_tools import Named, read_choice, read_tools
from agentworld.errors import InvalidRequestError
from agentworld.records import Message, Sampling

DIALECT = "responses"
PREFIX = "resp_"
NOTES = "responses"
"""The name in a step's metadata under which stands what later calls and readers need."""
MAX_REFERENCES = 64

# Change nothing in what is sampled; any value is taken.
HARMLESS = frozenset(
    {"user", "service_tier", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options"}
    | {"safety_identifier", "client_metadata", "max_tool_calls", "cache_salt", "priority", "request_id"}
)
_INCLUDES = frozenset(
    {"file_search_call.results", "web_search_call.results", "web_search_call.action.sources"}
    | {"message.input_image.image_url", "computer_call_output.output.image_url", "code_interpreter_call.outputs"}
    | {"reasoning.encrypted_content", "message.output_text.logprobs"}
)
_RESPONSE_ID = re.compile(rf"{PREFIX}(?P<exchange>exc_[0-9a-z]{{26}})")


class PreviousResponseNotFoundError(InvalidRequestError):
    """The response that the call goes on from is not there."""

    code = "previous_response_not_found"


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """A stored reply. `messages`: its prompt; `instructions`: how many of them were the call's own instructions;
    `runs`: of the reply, as in Choice; `size`: about how many bytes all of it is.
    """

    exchange_id: str
    messages: tuple[Message, ...]
    reply: Message
    instructions: int = 0
    named: Named = {}
    trajectory_id: str = ""
    runs: tuple[Run, ...] = ()
    size: int = 0


def response_exchange(response_id: str) -> str | None:
    """The exchange that a response's id names; None for ids that are not ours."""
    found = _RESPONSE_ID.fullmatch(response_id)
    return found["exchange"] if found is not None else None


def wanted(body: dict[str, Any]) -> list[str]:
    """The exchanges that a body refers to; InvalidRequestError where they are too many."""
    found: dict[str, None] = {}  # In their order; a list would be looked through for each item.
    previous = body.get("previous_response_id")
    if isinstance(previous, str) and (exchange := response_exchange(previous)) is not None:
        found[exchange] = None
    given = body.get("input")
    for item in given if isinstance(given, list) else ():
        if isinstance(item, dict) and item.get("type") == "item_reference":
            exchange = exchange_of(item.get("id"))
            if exchange is not None:
                found[exchange] = None
    if len(found) > MAX_REFERENCES:
        raise InvalidRequestError(
            f"the input refers to items of {len(found)} responses, at most {MAX_REFERENCES} are looked up",
            path="input",
            hint="Send the items themselves, or use previous_response_id",
        )
    return list(found)


def parse(body: dict[str, Any], past: Mapping[str, Past] | None = None) -> Request:
    """A decoded body as a request; InvalidRequestError names the JSON path of what is wrong.

    `past`: the stored replies that `wanted` names, by exchange, as far as they are there.
    """
    known = past or {}
    fields = Fields(body)
    model = fields.take("model", str) or ""
    instructions = fields.take("instructions", str)
    previous = fields.take("previous_response_id", str)
    found: list[Message] = [Message(role="system", content=instructions)] if instructions else []
    if previous is not None:
        found.extend(_history(previous, known))
    images = Images()
    new, later_tools = _input(fields, known, images)
    if not new and not (previous is not None and len(found) > bool(instructions)):
        raise InvalidRequestError("input must hold at least one item", path="input")
    first_tools = [(item, f"tools[{position}]") for position, item in enumerate(fields.take("tools", list) or [])]
    tools, named = read_tools([*first_tools, *later_tools])
    reasoning = _reasoning(fields)
    shape, verbosity = _text(fields)
    template = with_thinking(read_template(fields), reasoning["effort"], verbosity)
    sampling = msgspec.structs.replace(_sampling(fields, read_choice(fields, tools)), response_format=shape)
    if not tools:
        sampling = msgspec.structs.replace(sampling, parallel_tool_calls=None)
    include = _include(fields)
    top = fields.integer("top_logprobs", 0, MAX_TOP_LOGPROBS) or 0
    metadata = _metadata(fields)
    store = fields.take("store", bool)
    stream = fields.take("stream", bool) or False
    _stream_options(fields)
    for name, values in _NEUTRAL:
        fields.neutral(name, *values)
    fields.finish(HARMLESS)
    notes: dict[str, Any] = {"instructions": int(bool(instructions))}
    notes |= {
        name: value
        for name, value in (
            ("previous", previous),
            ("named", named),
            ("metadata", metadata),
            ("store", store),
            ("effort", reasoning["effort"]),
            ("summary", reasoning["summary"]),
        )
        if value not in (None, {})
    }
    return Request(
        dialect=DIALECT,
        model=model,
        messages=(*found, *new),
        tools=tools,
        sampling=sampling,
        stream=stream,
        logprobs="message.output_text.logprobs" in include or top > 0,
        top_logprobs=top,
        template=template,
        echo={
            "instructions": instructions,
            "metadata": metadata,
            "parallel_tool_calls": sampling.parallel_tool_calls is not False,
            "previous_response_id": previous,
            "reasoning": reasoning,
            "store": store is not False,
            "text": body.get("text") or {"format": {"type": "text"}},
            "tool_choice": body.get("tool_choice") or "auto",
            "tools": body.get("tools") or [],
            "top_logprobs": top,
            "sealed": "reasoning.encrypted_content" in include,
        },
        notes={NOTES: notes},
        media=images.media,
    )


_NEUTRAL: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("background", (False,)),
    ("context_management", ([],)),
    ("conversation", ()),
    ("moderation", ()),
    ("prompt", ()),
    ("truncation", ("disabled",)),
)


def _sampling(fields: Fields, choice: Any) -> Sampling:
    """The sampling fields: those of this API, and those that engines know beyond it."""
    limit = fields.integer("max_output_tokens", 1)
    fields.neutral("n", 1)
    fields.neutral("response_format", {"type": "text"})
    sampling = read_sampling(fields, choice)
    limit = limit if limit is not None else sampling.max_tokens
    if limit is not None and (sampling.min_tokens or 0) > limit:
        raise InvalidRequestError("min_tokens is over max_output_tokens", path="min_tokens")
    return msgspec.structs.replace(sampling, max_tokens=limit)


def _history(previous: str, past: Mapping[str, Past]) -> list[Message]:
    """The conversation up to a stored reply, without the instructions of that call."""
    exchange = response_exchange(previous)
    known = past.get(exchange) if exchange is not None else None
    if known is None:
        raise PreviousResponseNotFoundError(
            f"there is no response {previous[:100]!r} to go on from",
            path="previous_response_id",
            hint="Use the id of a response of this gateway that has ended, or send the conversation as input",
        )
    return [*known.messages[known.instructions :], known.reply]


def _input(fields: Fields, past: Mapping[str, Past], images: Images) -> tuple[list[Message], Tools]:
    value = fields.raw("input")
    if value is None:
        return [], []
    if isinstance(value, str):
        return [Message(role="user", content=value)], []
    if not isinstance(value, list):
        raise fields.refuse("input", "a string or a list of items")
    check_count(value, MAX_MESSAGES, "input")
    stored: dict[str, dict[str, dict[str, Any]]] = {}
    used: set[str] = set()

    def resolve(wanted_id: str, path: str) -> dict[str, Any]:
        # A few bytes stand for as much as a reply may hold, so each stands for it once.
        if wanted_id in used:
            raise InvalidRequestError(
                f"item {wanted_id[:100]!r} is referred to twice", path=path, hint="Refer to each item once"
            )
        used.add(wanted_id)
        exchange = exchange_of(wanted_id)
        known = past.get(exchange) if exchange is not None else None
        if known is not None and known.exchange_id not in stored:
            items = output_items(known.reply, known.exchange_id, known.named, sealed=False, runs=known.runs)
            stored[known.exchange_id] = {item["id"]: item for item in items}
        found = stored[known.exchange_id].get(wanted_id) if known is not None else None
        if found is None:
            raise InvalidRequestError(f"there is no item {wanted_id[:100]!r}", path=path, hint="Send the item itself")
        return found

    return read_items(value, "input", resolve, images)


def _text(fields: Fields) -> tuple[dict[str, Any] | None, str | None]:
    """The format of the reply in OpenAI chat's shape, and its verbosity."""
    value = fields.take("text", dict)
    if value is None:
        return None, None
    inner = Fields(value, "text")
    verbosity = inner.word("verbosity", VERBOSITIES)
    given = inner.take("format", dict)
    inner.finish()
    return (_format(Fields(given, "text.format")) if given is not None else None), verbosity


def _format(shape: Fields) -> dict[str, Any] | None:
    kind = shape.need("type", str)
    if kind == "json_schema":
        schema: dict[str, Any] = {"name": shape.need("name", str), "schema": shape.need("schema", dict)}
        description, strict = shape.take("description", str), shape.take("strict", bool)
        schema |= {name: value for name, value in (("description", description), ("strict", strict)) if value}
        shape.finish()
        return {"type": "json_schema", "json_schema": schema}
    if kind not in ("text", "json_object"):
        raise shape.refuse("type", "text, json_object or json_schema")
    shape.finish()
    return {"type": "json_object"} if kind == "json_object" else None


def _include(fields: Fields) -> list[str]:
    """What the reply shall hold beyond the usual; what only hosted tools have is never there."""
    given = fields.take("include", list) or []
    check_include(given)
    return given


def check_include(given: list[Any]) -> None:
    """InvalidRequestError where `include` has what no response holds."""
    for position, item in enumerate(given):
        if not isinstance(item, str) or item not in _INCLUDES:
            raise InvalidRequestError(f"include[{position}] is not known here", path=f"include[{position}]")


def _reasoning(fields: Fields) -> dict[str, Any]:
    """The effort, and whether a summary is wanted."""
    value = fields.take("reasoning", dict)
    effort = summary = None
    if value is not None:
        inner = Fields(value, "reasoning")
        effort = inner.word("effort", EFFORTS)
        inner.neutral("context", "auto", "all_turns")
        inner.neutral("mode", "standard")
        for name in ("summary", "generate_summary"):
            asked = inner.take(name, str)
            if asked not in (None, "auto", "concise", "detailed", "none"):
                raise inner.refuse(name, "auto, concise or detailed")
            summary = summary or (asked if asked != "none" else None)
        inner.finish()
    return {"effort": effort, "summary": summary}


def _metadata(fields: Fields) -> dict[str, Any]:
    value = fields.take("metadata", dict) or {}
    if not all(isinstance(item, str) for item in value.values()):
        raise fields.refuse("metadata", "an object with texts")
    return value


def _stream_options(fields: Fields) -> None:
    options = fields.take("stream_options", dict)
    if options is not None:
        Fields(options, "stream_options").finish({"include_obfuscation", "include_usage"})
