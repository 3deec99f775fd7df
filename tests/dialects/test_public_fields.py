"""Every field that the packages of OpenAI and Anthropic can send is carried, refused, or listed here as harmless.

The packages' own typed params say which fields there are, so that a field that comes with a newer package fails a test
until somebody has decided on it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import anthropic.types.beta.message_count_tokens_params as beta_count_params
import anthropic.types.beta.message_create_params as beta_messages_params
import anthropic.types.message_count_tokens_params as count_params
import anthropic.types.message_create_params as messages_params
import openai.types.chat.completion_create_params as chat_params
import openai.types.completion_create_params as completions_params
import openai.types.responses.input_token_count_params as input_count_params
import openai.types.responses.response_create_params as responses_params
import pytest

from agentworld.dialects import Request, chat, completions, messages, responses
from agentworld.errors import InvalidRequestError
from tests.dialects.typed_fields import ignored, outcomes

SCHEMA = {"type": "object"}
FUNCTION = {"type": "function", "function": {"name": "x", "parameters": SCHEMA}}
CHAT = {"model": "x", "messages": [{"role": "user", "content": "x"}], "tools": [FUNCTION], "logprobs": True}
TEXT = {"model": "x", "prompt": "x"}
ITEMS = {"model": "x", "input": "x", "tools": [{"type": "function", "name": "x", "parameters": SCHEMA}]}
THOUGHT = {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "x"}]}
USER = {"role": "user", "content": "x"}
CLAUDE: dict[str, Any] = {
    "model": "x",
    "messages": [USER, THOUGHT, USER, THOUGHT, USER],
    "tools": [{"name": "x", "input_schema": SCHEMA}],
}
LIMITED = {**CLAUDE, "max_tokens": 30}

# Who asks, what it costs, how fast it is served and where it is kept: nothing of it changes what is sampled.
SERVICE = {"metadata", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "safety_identifier"}
SERVICE |= {"service_tier", "store", "user", "cache_control", "inference_geo", "speed", "diagnostics", "betas"}


class Api(NamedTuple):
    """One API. `harmless`: fields that may have no effect, as `Class.field`, or as `field` of the body itself."""

    params: Any
    parse: Callable[[dict[str, Any]], Request]
    base: dict[str, Any]
    harmless: set[str]


# Marks that move between calls, ids that only tie items of one request, and what a service says beside its text.
OF_RESPONSES = {
    *("AnnotationContainerFileCitation", "AnnotationFileCitation", "AnnotationFilePath", "AnnotationURLCitation"),
    *("Logprob", "LogprobTopLogprob", "PromptCacheOptions"),
    *("EasyInputMessageParam.phase", "EasyInputMessageParam.type", "Message.status", "Message.type"),
    *("ResponseCustomToolCallOutputParam.caller", "ResponseCustomToolCallOutputParam.id"),
    *("ResponseCustomToolCallParam.caller", "ResponseCustomToolCallParam.id"),
    *("ResponseFunctionToolCallParam.caller", "ResponseFunctionToolCallParam.id"),
    "ResponseFunctionToolCallParam.status",
    *("ResponseOutputMessageParam.id", "ResponseOutputMessageParam.phase", "ResponseOutputMessageParam.status"),
    *("ResponseReasoningItemParam.id", "ResponseReasoningItemParam.status"),
    # Sealed by another service, so that nobody else can read it.
    "ResponseReasoningItemParam.encrypted_content",
    # Of tools that run at OpenAI, and those are refused.
    "max_tool_calls",
    # Padding of a stream's events.
    "StreamOptions.include_obfuscation",
}
# A budget of thinking or of a task is a hint that open models have no switch for; how it is shown is the service's.
OF_MESSAGES = {
    "TokenTaskBudgetParam",
    "ThinkingConfigAdaptiveParam.display",
    "ThinkingConfigEnabledParam.budget_tokens",
}
OF_MESSAGES |= {"ThinkingConfigEnabledParam.display", "DiagnosticsParam", "MetadataParam", "ToolParam.cache_control"}
OF_MESSAGES |= {"ToolParam.eager_input_streaming", "ToolParam.type"}

counted = partial(messages.parse, counting=True)
APIS = {
    "chat": Api(
        chat_params.CompletionCreateParamsNonStreaming,
        chat.parse,
        CHAT,
        {"ChatCompletionStreamOptionsParam.include_obfuscation", "PromptCacheOptions"},
    ),
    "completions": Api(
        completions_params.CompletionCreateParamsNonStreaming,
        completions.parse,
        TEXT,
        {"ChatCompletionStreamOptionsParam.include_obfuscation"},
    ),
    "responses": Api(responses_params.ResponseCreateParamsNonStreaming, responses.parse, ITEMS, OF_RESPONSES),
    "responses, counted": Api(input_count_params.InputTokenCountParams, responses.parse, ITEMS, OF_RESPONSES),
    "messages": Api(messages_params.MessageCreateParamsNonStreaming, messages.parse, LIMITED, OF_MESSAGES),
    "messages, counted": Api(count_params.MessageCountTokensParams, counted, CLAUDE, OF_MESSAGES),
    "messages, beta": Api(beta_messages_params.MessageCreateParamsNonStreaming, messages.parse, LIMITED, OF_MESSAGES),
    "messages, beta, counted": Api(beta_count_params.MessageCountTokensParams, counted, CLAUDE, OF_MESSAGES),
}


def short(field: str, body: str) -> str:
    """The field as the lists name it: those of the body alone, and those of a beta like the others."""
    kind, name = field.split(".")
    return name if kind == body else f"{kind.removeprefix('Beta')}.{name}"


@pytest.mark.parametrize("name", APIS)
def test_no_field_is_ignored_in_silence(name: str) -> None:
    api = APIS[name]
    found = ignored(outcomes(api.params, api.parse, api.base, without=("stream",)))
    fields = {short(field, api.params.__name__) for field in found}
    assert {field for field in fields if not {field, field.split(".")[0]} & (SERVICE | api.harmless)} == set()


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("chat", "frequency_penalty logit_bias logprobs max_completion_tokens max_tokens messages model n"),
        ("chat", "parallel_tool_calls presence_penalty response_format seed stop temperature tool_choice tools top_p"),
        ("chat", "reasoning_effort verbosity"),
        ("completions", "frequency_penalty logit_bias logprobs max_tokens n presence_penalty prompt seed stop top_p"),
        ("responses", "include input instructions max_output_tokens parallel_tool_calls temperature tool_choice tools"),
        ("messages", "max_tokens messages model stop_sequences system thinking tool_choice tools"),
    ],
)
def test_what_matters_is_carried(name: str, fields: str) -> None:
    """The sweep itself sees it: each changes the request, alone or by what is in it."""
    api = APIS[name]
    found = outcomes(api.params, api.parse, api.base, without=("stream",))
    silent = ignored(found)
    for field in fields.split():
        label = f"{api.params.__name__}.{field}"
        assert label not in silent, field
        assert label not in found or found[label].read, field


@pytest.mark.parametrize("name", APIS)
def test_what_no_package_knows_is_refused(name: str) -> None:
    api = APIS[name]
    api.parse(api.base)
    with pytest.raises(InvalidRequestError) as caught:
        api.parse({**api.base, "a_field_of_tomorrow": 1})
    assert caught.value.path == "a_field_of_tomorrow"


def test_the_sweep_finds_what_is_ignored() -> None:
    """As if a field of the body, and one deep within it, were dropped on the way."""

    def careless(body: dict[str, Any]) -> Request:
        kept = {field: value for field, value in body.items() if field != "seed"}
        if isinstance(said := kept.get("messages"), list):
            kept["messages"] = [{name: value for name, value in each.items() if name != "name"} for each in said]
        return chat.parse(kept)

    found = ignored(outcomes(chat_params.CompletionCreateParamsNonStreaming, careless, CHAT, without=("stream",)))
    assert "CompletionCreateParamsNonStreaming.seed" in found
    assert "ChatCompletionUserMessageParam.name" in found
