"""OpenAI chat completions: request body -> canonical request, strictly.

A sampling field is read or refused, never ignored. Left out on purpose: audio and files, the deprecated `functions`.
"""

from __future__ import annotations

import re
from collections.abc import Sized
from typing import Any

import msgspec

from agentworld.dialects.exchange import Request
from agentworld.dialects.fields import MAX_ID, Fields
from agentworld.dialects.media import Images
from agentworld.errors import InvalidRequestError
from agentworld.records import FunctionCall, MediaPart, Message, Role, Sampling, TextPart, Tool, ToolCall

DIALECT = "chat"
MAX_CHOICES = 128
MAX_TOP_LOGPROBS = 20
MAX_MESSAGES = 100_000
MAX_STOPS = 64
MAX_STOP_IDS = 1024
MAX_BIASES = 1024
MAX_TEMPLATE_SETTINGS = 64
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
VERBOSITIES = ("low", "medium", "high")
_TOKEN_ID = re.compile("0|[1-9][0-9]{0,9}")

# Change nothing in what is sampled; any value is taken.
HARMLESS = frozenset(
    {"user", "metadata", "store", "service_tier", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options"}
    | {"safety_identifier", "cache_salt", "priority", "request_id", "spaces_between_special_tokens"}
)
# What clients echo from replies or add for other providers.
HARMLESS_IN_MESSAGE = frozenset(
    {"annotations", "cache_control", "provider_specific_fields", "reasoning_details", "thinking_blocks", "id"}
    | {"token_ids", "finish_reason", "stop_reason"}
)
# Marks of caches, and what clients keep beside a part that came with a reply.
HARMLESS_IN_PART = frozenset(
    {"cache_control", "prompt_cache_breakpoint", "annotations", "citations", "logprobs", "signature", "id", "index"}
)
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "add_special_tokens": (False,),
    "echo": (False,),
    "functions": ([],),
    "ignore_eos": (False,),
    "include_stop_str_in_output": (False,),
    "modalities": (["text"],),
    "skip_special_tokens": (True,),
    "use_beam_search": (False,),
}
_ROLES: tuple[Role, ...] = ("system", "developer", "user", "assistant", "tool")
_ROLES_WITH_IMAGES = ("user", "tool")
_SIMPLE_CHOICES = ("auto", "none", "required")


def parse(body: dict[str, Any]) -> Request:
    """A decoded body as a request; InvalidRequestError names the JSON path of what is wrong."""
    fields = Fields(body)
    model = fields.take("model", str) or ""
    given = fields.need("messages", list)
    if not given:
        raise InvalidRequestError("messages must hold at least one message", path="messages")
    check_count(given, MAX_MESSAGES, "messages")
    images = Images()
    messages = tuple(_message(item, f"messages[{position}]", images) for position, item in enumerate(given))
    tools, choice = read_tools(fields)
    stream = fields.take("stream", bool) or False
    include_usage = read_stream_options(fields)
    logprobs = fields.take("logprobs", bool) or False
    top = fields.integer("top_logprobs", 0, MAX_TOP_LOGPROBS) or 0
    if top and not logprobs:
        raise InvalidRequestError("top_logprobs needs logprobs: true", path="top_logprobs")
    return_token_ids = fields.take("return_token_ids", bool) or False
    include_reasoning = fields.take("include_reasoning", bool)
    template = read_template(fields)
    template = with_thinking(template, fields.word("reasoning_effort", EFFORTS), fields.word("verbosity", VERBOSITIES))
    continue_final = _continue_final(fields, messages[-1], len(messages) - 1)
    sampling = read_sampling(fields, choice)
    fields.neutrals(_NEUTRAL)
    fields.finish(HARMLESS)
    return Request(
        dialect=DIALECT,
        model=model,
        messages=messages,
        tools=tools,
        sampling=sampling,
        stream=stream,
        include_usage=include_usage,
        logprobs=logprobs,
        top_logprobs=top,
        return_token_ids=return_token_ids,
        template=template,
        continue_final=continue_final,
        hide_reasoning=include_reasoning is False,
        media=images.media,
    )


def _continue_final(fields: Fields, last: Message, position: int) -> bool:
    """Whether the reply goes on from the last message, as vLLM spells it: this flag on and the other one off."""
    goes_on = fields.take("continue_final_message", bool) or False
    prompts = fields.take("add_generation_prompt", bool)
    if goes_on is (prompts is not False):
        raise InvalidRequestError(
            "continue_final_message: true goes with add_generation_prompt: false, and neither without the other",
            path="continue_final_message" if goes_on else "add_generation_prompt",
            hint="Set both to go on from the last message, or none",
        )
    if goes_on:
        check_beginning(last, f"messages[{position}]")
    return goes_on


def check_beginning(message: Message, path: str) -> None:
    """InvalidRequestError where no reply begins with the message."""
    if message.role != "assistant" or message.tool_calls:
        raise InvalidRequestError(
            "only a message of the assistant without tool calls can be gone on with",
            path=path,
            hint="End with what the assistant has said so far, or with a user or tool message",
        )


def check_count(value: Sized, most: int, path: str) -> None:
    """InvalidRequestError where a list or an object holds more than `most`."""
    if len(value) > most:
        raise InvalidRequestError(
            f"{path} holds {len(value)}, at most {most} are taken", path=path, hint="Send fewer of them"
        )


def read_template(fields: Fields) -> dict[str, Any]:
    """Settings of the chat template."""
    template = fields.take("chat_template_kwargs", dict) or {}
    check_count(template, MAX_TEMPLATE_SETTINGS, "chat_template_kwargs")
    return template


def with_thinking(template: dict[str, Any], effort: str | None, verbosity: str | None) -> dict[str, Any]:
    """The template's settings with how much to think and to say, under the names that open models' templates have.

    Verbosity `medium` is what there is. InvalidRequestError where the settings say something else already.
    """
    said: dict[str, Any] = {"verbosity": verbosity} if verbosity in ("low", "high") else {}
    if effort is not None:
        said |= {"enable_thinking": False} if effort == "none" else {"reasoning_effort": effort}
    for name, value in said.items():
        if template.get(name, value) != value:
            raise InvalidRequestError(
                f"chat_template_kwargs sets {name} to something else",
                path="chat_template_kwargs",
                hint="Say it in one place",
            )
    return {**template, **said}


def _stop(fields: Fields) -> tuple[str, ...]:
    stop = fields.raw("stop")
    stops = [stop] if isinstance(stop, str) else [] if stop is None else stop
    if not isinstance(stops, list) or not all(isinstance(text, str) and text for text in stops):
        raise fields.refuse("stop", "a non-empty string or a list of them")
    check_count(stops, MAX_STOPS, "stop")
    return tuple(stops)


def read_sampling(fields: Fields, tool_choice: Any) -> Sampling:
    """The sampling fields of a body; None where the caller set none."""
    older, newer = fields.integer("max_tokens", 1), fields.integer("max_completion_tokens", 1)
    top_k = fields.integer("top_k", -1)
    limit = newer if newer is not None else older
    min_tokens = fields.integer("min_tokens", 0)
    if limit is not None and min_tokens is not None and min_tokens > limit:
        raise InvalidRequestError("min_tokens is over max_tokens", path="min_tokens")
    return Sampling(
        temperature=fields.number("temperature", 0, 100),
        top_p=fields.number("top_p", 0, 1, above=True),
        top_k=None if top_k is None else max(top_k, 0),
        min_p=fields.number("min_p", 0, 1),
        max_tokens=limit,
        min_tokens=min_tokens,
        stop=_stop(fields),
        stop_token_ids=_stop_ids(fields),
        seed=fields.integer("seed", -(2**63), 2**63 - 1),
        n=fields.integer("n", 1, MAX_CHOICES) or 1,
        presence_penalty=fields.number("presence_penalty", -2, 2),
        frequency_penalty=fields.number("frequency_penalty", -2, 2),
        repetition_penalty=fields.number("repetition_penalty", 0, 100, above=True),
        logit_bias=_logit_bias(fields),
        tool_choice=tool_choice,
        parallel_tool_calls=fields.take("parallel_tool_calls", bool),
        response_format=_response_format(fields),
    )


def _stop_ids(fields: Fields) -> tuple[int, ...]:
    ids = fields.take("stop_token_ids", list) or []
    check_count(ids, MAX_STOP_IDS, "stop_token_ids")
    if not all(type(item) is int and 0 <= item <= MAX_ID for item in ids):
        raise fields.refuse("stop_token_ids", f"a list of token ids from 0 to {MAX_ID}")
    return tuple(ids)


def _logit_bias(fields: Fields) -> dict[str, float] | None:
    given = fields.take("logit_bias", dict)
    if not given:
        return None
    check_count(given, MAX_BIASES, "logit_bias")
    inner = Fields(given, fields.where("logit_bias"))
    bias: dict[str, float] = {}
    for key in given:
        # One spelling for each id, so that none comes twice, and digits that every engine reads.
        if _TOKEN_ID.fullmatch(key) is None or int(key) > MAX_ID:
            raise InvalidRequestError(f"logit_bias key {key[:40]!r} is not a token id", path="logit_bias")
        value = inner.number(key, -100, 100)
        if value is not None:
            bias[key] = value
    return bias or None


def _response_format(fields: Fields) -> dict[str, Any] | None:
    value = fields.take("response_format", dict)
    if value is None or value == {"type": "text"}:
        return None
    if value.get("type") not in ("json_object", "json_schema"):
        raise InvalidRequestError(
            "response_format.type must be text, json_object or json_schema", path="response_format.type"
        )
    return value


def read_stream_options(fields: Fields) -> bool:
    """Whether the stream shall end with the usage."""
    options = fields.take("stream_options", dict)
    if options is None:
        return False
    inner = Fields(options, "stream_options")
    include = inner.take("include_usage", bool) or False
    inner.finish({"continuous_usage_stats", "include_obfuscation"})
    return include


def read_tools(fields: Fields) -> tuple[tuple[Tool, ...], Any]:
    """Tools and tool choice. An empty list is no tools, and is refused only where a call is demanded."""
    given = fields.take("tools", list) or []
    names = []
    for position, tool in enumerate(given):
        inner = Fields(tool, f"tools[{position}]")
        kind = inner.take("type", str) or "function"
        if kind != "function":
            raise InvalidRequestError(f"tools of type {kind!r} are not supported", path=inner.where("type"))
        function = Fields(inner.need("function", dict), inner.where("function"))
        names.append(function.need("name", str))
        function.take("description", str)
        function.take("parameters", dict)
    choice = fields.raw("tool_choice")
    if isinstance(choice, dict):
        inner = Fields(choice, "tool_choice")
        if inner.take("type", str) != "function":
            raise inner.refuse("type", "function")
        named = Fields(inner.need("function", dict), "tool_choice.function").need("name", str)
        if named not in names:
            raise InvalidRequestError(f"tool_choice names {named!r}, which is not in tools", path="tool_choice")
    elif choice is not None and choice not in _SIMPLE_CHOICES:
        raise fields.refuse("tool_choice", "auto, none, required or a named function")
    if choice == "required" and not given:
        raise InvalidRequestError("tool_choice is required, but there are no tools", path="tools")
    if not given:
        return (), None
    return tuple(_unmarked(tool) for tool in given), choice


def _unmarked(tool: Tool) -> Tool:
    """The tool without marks for a cache, which move from call to call and say nothing."""
    if "cache_control" in tool or "cache_control" in tool["function"]:
        tool = {name: value for name, value in tool.items() if name != "cache_control"}
        tool["function"] = {name: value for name, value in tool["function"].items() if name != "cache_control"}
    return tool


def _message(item: Any, path: str, images: Images) -> Message:
    fields = Fields(item, path)
    role = fields.one_of("role", _ROLES)
    thoughts: list[str] = []
    content = _content(fields, thoughts, images if role in _ROLES_WITH_IMAGES else None)
    for spelling in ("reasoning_content", "reasoning"):
        text = fields.take(spelling, str)
        # No thinking is spelled as an empty text too, and both spellings may come with one text.
        if text and text not in thoughts:
            thoughts.append(text)
    calls = _tool_calls(fields)
    refusal = fields.take("refusal", str)
    tool_call_id = fields.take("tool_call_id", str)
    name = fields.take("name", str)
    fields.neutral("function_call")
    fields.neutral("audio")
    fields.finish(HARMLESS_IN_MESSAGE)
    if role == "assistant":
        if content == ():
            content = None
        if content is None and refusal is not None:
            content = refusal
    else:
        if calls:
            raise InvalidRequestError(f"tool_calls do not go with role {role}", path=f"{path}.tool_calls")
        if content == ():
            content = ""
        if content is None and role != "tool":
            raise InvalidRequestError(f"{path}.content is missing", path=f"{path}.content")
    if role == "tool" and tool_call_id is None:
        raise InvalidRequestError(f"{path}.tool_call_id is missing", path=f"{path}.tool_call_id")
    return Message(
        role=role,
        content=content,
        reasoning="\n".join(thoughts) if thoughts else None,
        tool_calls=calls,
        tool_call_id=tool_call_id,
        name=name,
    )


def _content(
    fields: Fields, thoughts: list[str], images: Images | None
) -> str | tuple[TextPart | MediaPart, ...] | None:
    """Text, parts or None; parts that hold thinking go to `thoughts`. `images`: None where the role shows none."""
    value = fields.raw("content")
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise fields.refuse("content", "a string, null or a list of parts")
    parts: list[TextPart | MediaPart] = []
    for position, item in enumerate(value):
        path = f"{fields.where('content')}[{position}]"
        if isinstance(item, str):
            parts.append(TextPart(text=item))
            continue
        part = Fields(item, path)
        kind = part.take("type", str)
        if kind in ("text", "input_text", "output_text"):
            parts.append(TextPart(text=part.need("text", str)))
        elif kind == "refusal":
            parts.append(TextPart(text=part.need("refusal", str)))
        elif kind == "thinking":
            thoughts.extend(filter(None, [part.need("thinking", str)]))
        elif kind in ("image_url", "input_image") and images is not None:
            parts.append(_image(part, images))
        else:
            raise InvalidRequestError(
                f"content parts of type {str(kind)[:60]!r} are not supported here",
                path=f"{path}.type",
                hint="Send text and image_url parts" if images is not None else "Send text parts",
            )
        part.finish(HARMLESS_IN_PART)
    return tuple(parts)


def _image(part: Fields, images: Images) -> MediaPart:
    """An image part: its address in an object, or, as some clients write it, in its own place."""
    given = part.raw("image_url")
    if isinstance(given, str):
        return images.data_url(given, part.where("image_url"), part.raw("detail"))
    inner = Fields(given, part.where("image_url"))
    image = images.data_url(inner.need("url", str), inner.where("url"), inner.raw("detail"))
    inner.finish()
    return image


def _tool_calls(fields: Fields) -> tuple[ToolCall, ...]:
    calls = []
    for position, item in enumerate(fields.take("tool_calls", list) or []):
        call = Fields(item, f"{fields.where('tool_calls')}[{position}]")
        kind = call.take("type", str) or "function"
        if kind != "function":
            raise call.refuse("type", "function")
        function_fields = call.need("function", dict)
        function = Fields(function_fields, call.where("function"))
        name = function.need("name", str)
        # Whatever a model produced is kept as it is: text raw, anything else as its JSON.
        arguments = function_fields.get("arguments", "")
        raw = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
        calls.append(ToolCall(id=call.take("id", str) or f"call_{position}", function=FunctionCall(name, raw)))
    return tuple(calls)
