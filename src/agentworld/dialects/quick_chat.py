"""The usual bodies of OpenAI chat completions -> canonical request, without a look-up for each field.

One typed decode takes fields of their usual types, and nothing else. Whatever it does not take is read by `chat.parse`,
which alone says what is wrong; what it takes means the same to both. Left out on purpose: images, biases, formats of
the reply, and a named function as tool choice.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from agentworld.dialects import chat
from agentworld.dialects.exchange import KeptTools, Request
from agentworld.dialects.fields import MAX_WHOLE, Fields
from agentworld.errors import InvalidRequestError
from agentworld.records import FunctionCall, Message, Part, Role, Sampling, TextPart, Tool, ToolCall
from agentworld.records.depth import check_depth

_MOST_TOOLS, _LONGEST_TOOLS = 64, 32 * 1024
_NO_TOOLS = msgspec.Raw(b"null")

_NotEmpty = Annotated[str, Meta(min_length=1)]
_Nothing = Annotated[list[None], Meta(max_length=0)]
_Limit = Annotated[int, Meta(ge=1, le=MAX_WHOLE)]
_Above = Annotated[int, Meta(ge=0, le=MAX_WHOLE)]
_Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
_Verbosity = Literal["low", "medium", "high"]
_Penalty = Annotated[float, Meta(ge=-2, le=2)]


class _Function(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    name: str
    arguments: str


class _Call(msgspec.Struct, forbid_unknown_fields=True):
    id: _NotEmpty
    function: _Function
    type: Literal["function"] = "function"
    index: int | None = None


class _Mark(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Where a cache may end; it moves from call to call and says nothing."""

    type: str
    ttl: str | None = None


class _Text(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    type: Literal["text"]
    text: str
    cache_control: _Mark | None = None


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    """A message; what clients echo from replies without saying anything by it is taken where it is empty."""

    role: Role
    content: str | list[_Text] | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: None = None
    function_call: None = None
    audio: None = None
    annotations: _Nothing | None = None
    cache_control: _Mark | None = None


class _StreamOptions(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    messages: Annotated[list[_Message], Meta(min_length=1, max_length=chat.MAX_MESSAGES)]
    model: str | None = None
    tools: msgspec.Raw = _NO_TOOLS
    tool_choice: Literal["auto", "none", "required"] | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=chat.MAX_TOP_LOGPROBS)] | None = None
    return_token_ids: bool | None = None
    include_reasoning: bool | None = None
    skip_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    reasoning_effort: _Effort | None = None
    verbosity: _Verbosity | None = None
    chat_template_kwargs: (
        Annotated[dict[str, bool | str | None], Meta(max_length=chat.MAX_TEMPLATE_SETTINGS)] | None
    ) = None
    temperature: Annotated[float, Meta(ge=0, le=100)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=MAX_WHOLE)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    max_tokens: _Limit | None = None
    max_completion_tokens: _Limit | None = None
    min_tokens: _Above | None = None
    stop: _NotEmpty | Annotated[list[_NotEmpty], Meta(max_length=chat.MAX_STOPS)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=MAX_WHOLE)] | None = None
    n: Annotated[int, Meta(ge=1, le=chat.MAX_CHOICES)] | None = None
    presence_penalty: _Penalty | None = None
    frequency_penalty: _Penalty | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=100)] | None = None
    parallel_tool_calls: bool | None = None
    # Change nothing in what is sampled; the gateway looks in some of them for whose call it is.
    user: str | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    spaces_between_special_tokens: bool | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None


_decode = msgspec.json.Decoder(_Body).decode
_decode_tools = msgspec.json.Decoder(list[dict[str, Any]]).decode
_known_tools: dict[bytes, KeptTools] = {}


def read(body: bytes) -> tuple[Request, dict[str, Any]] | None:
    """The request, and those fields of the body that say whose call it is; None for what `chat.parse` has to read.

    The request lacks `raw`.
    """
    try:
        said = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    messages = _messages(said.messages)
    limit = said.max_tokens if said.max_completion_tokens is None else said.max_completion_tokens
    top_k, stop = said.top_k, said.stop
    if messages is None or (said.top_logprobs and not said.logprobs):
        return None
    if said.skip_special_tokens is False or said.add_generation_prompt is False:
        return None
    if said.min_tokens is not None and limit is not None and said.min_tokens > limit:
        return None
    tools, choice = () if said.tools is _NO_TOOLS else _tools(bytes(said.tools)), said.tool_choice
    if tools is None:
        return None
    if not tools:
        if choice == "required":
            return None
        choice = None
    template: dict[str, Any] = said.chat_template_kwargs or {}
    if said.reasoning_effort is not None or said.verbosity is not None:
        try:
            template = chat.with_thinking(template, said.reasoning_effort, said.verbosity)
        except InvalidRequestError:
            return None
    request = Request(
        dialect=chat.DIALECT,
        model=said.model or "",
        messages=messages,
        tools=tools,
        sampling=Sampling(
            temperature=said.temperature,
            top_p=said.top_p,
            top_k=0 if top_k == -1 else top_k,
            min_p=said.min_p,
            max_tokens=limit,
            min_tokens=said.min_tokens,
            stop=() if stop is None else (stop,) if stop.__class__ is str else tuple(stop),
            seed=said.seed,
            n=said.n or 1,
            presence_penalty=said.presence_penalty,
            frequency_penalty=said.frequency_penalty,
            repetition_penalty=said.repetition_penalty,
            tool_choice=choice,
            parallel_tool_calls=said.parallel_tool_calls,
        ),
        stream=said.stream is True,
        include_usage=said.stream_options is not None and said.stream_options.include_usage is True,
        logprobs=said.logprobs is True,
        top_logprobs=said.top_logprobs or 0,
        return_token_ids=said.return_token_ids is True,
        template=template,
        hide_reasoning=said.include_reasoning is False,
    )
    whose: dict[str, Any] = {"model": said.model}
    if said.metadata is not None:
        whose["metadata"] = said.metadata
    if said.prompt_cache_key is not None:
        whose["prompt_cache_key"] = said.prompt_cache_key
    return request, whose


def _messages(given: list[_Message]) -> tuple[Message, ...] | None:
    messages = []
    for said in given:
        role, text, calls = said.role, said.content, said.tool_calls
        content: str | tuple[Part, ...] | None
        if not isinstance(text, list):
            content = text
        elif text:
            content = tuple([TextPart(part.text) for part in text])
        else:
            content = None if role == "assistant" else ""
        thought = said.reasoning_content
        if said.reasoning and said.reasoning != thought:
            thought = f"{thought}\n{said.reasoning}" if thought else said.reasoning
        if calls:
            if role != "assistant":
                return None
            made = tuple(
                [ToolCall(call.id, FunctionCall(call.function.name, call.function.arguments)) for call in calls]
            )
        else:
            made = ()
            if role == "tool":
                if said.tool_call_id is None:
                    return None
            elif content is None and role != "assistant":
                return None
        messages.append(Message(role, content, thought or None, made, said.tool_call_id, said.name))
    return tuple(messages)


def _tools(given: bytes) -> tuple[Tool, ...] | None:
    """The tools of a body; a conversation sends the same again and again, and gets the same records."""
    if given == b"null":
        return ()
    if (known := _known_tools.get(given)) is not None:
        return known
    try:
        tools = _decode_tools(given)
        check_depth(tools, "tools")
        found, _ = chat.read_tools(Fields({"tools": tools}))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InvalidRequestError):
        return None
    if len(given) > _LONGEST_TOOLS:
        return found
    if len(_known_tools) >= _MOST_TOOLS:
        _known_tools.clear()
    kept = _known_tools[given] = KeptTools(found)
    return kept
