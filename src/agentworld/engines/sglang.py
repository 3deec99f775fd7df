"""SGLang: chat through its OpenAI routes, prompts of ids through its own `/generate`.

Its chat route gives ids only without streaming. So a streamed call to a model whose ids matter is asked plain, and the
caller gets the whole reply as its stream; with `tokens = none` the reply streams as it comes, without ids.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec

from agentworld.dialects.chat_reply import wire_messages
from agentworld.dialects.exchange import Delta, Request
from agentworld.engines.base import Capabilities, explicit
from agentworld.engines.sglang_wire import GenerateReader, read_chat
from agentworld.engines.vllm import VllmEngine, sampling_body
from agentworld.errors import InvalidRequestError
from agentworld.records import Sampling


class SglangEngine(VllmEngine):
    """A model behind an SGLang worker (its router may drop ids). Every sampling field is sent."""

    capabilities = Capabilities(
        ids=True, token_in=True, completions=True, stream_ids=False, continues=True, space="temperature"
    )

    def chat(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Chat with ids and log-probabilities back, unless the model's tokens are `none`."""
        exact = self.settings.tokens != "none"
        body: dict[str, Any] = {
            "model": self.settings.name,
            "messages": wire_messages(request, developer=self.capabilities.developer),
            **sampling_body(explicit(request.sampling)),
            "logprobs": True,
            "top_logprobs": request.top_logprobs,
        }
        if exact:
            flags = ("return_prompt_token_ids", "return_token_ids", "return_meta_info")
            body |= {**dict.fromkeys(flags, True), "stream": False}
        else:
            body |= self._stream(request)
        if request.tools:
            body["tools"] = list(request.tools)
            for name in ("tool_choice", "parallel_tool_calls"):
                if getattr(request.sampling, name) is not None:
                    body[name] = getattr(request.sampling, name)
        if request.template:
            body["chat_template_kwargs"] = request.template
        if request.continue_final:
            body["continue_final_message"] = True
        redactor = self.connection.redactor
        return self.connection.deltas(
            "/v1/chat/completions", body, lambda data: read_chat(data, entries=request.logprobs, redactor=redactor)
        )

    def generate(
        self, prompt_ids: Sequence[int], request: Request, sampling: Sampling
    ) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """The native route, with a prompt of ids."""
        return self._native({"input_ids": list(prompt_ids)}, request, sampling)

    def complete(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """The native route, with a prompt of text, which the engine encodes."""
        return self._native({"text": request.prompt, "return_prompt_token_ids": True}, request, request.sampling)

    def _native(
        self, prompt: dict[str, Any], request: Request, sampling: Sampling
    ) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        body = {
            **prompt,
            "sampling_params": native_sampling(explicit(sampling)),
            "return_logprob": True,
            "top_logprobs_num": request.top_logprobs,
            "return_text_in_logprobs": request.logprobs,
            "stream": request.stream,
        }
        reader = GenerateReader(entries=request.logprobs, redactor=self.connection.redactor)
        return self.connection.deltas("/generate", body, reader.read)


def native_sampling(sampling: Sampling) -> dict[str, Any]:
    """Sampling parameters as `/generate` spells them. No limit (null) is the rest of the context, not its default."""
    out: dict[str, Any] = {
        "max_new_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k or -1,
        "min_p": sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repetition_penalty": sampling.repetition_penalty,
        "n": sampling.n,
    }
    for name, value in (
        ("min_new_tokens", sampling.min_tokens),
        ("stop", list(sampling.stop) or None),
        ("stop_token_ids", list(sampling.stop_token_ids) or None),
        ("sampling_seed", sampling.seed),
        ("logit_bias", sampling.logit_bias),
        ("json_schema", _schema(sampling.response_format)),
    ):
        if value is not None:
            out[name] = value
    return out


def _schema(response_format: dict[str, Any] | None) -> str | None:
    """The JSON schema, as text, that a response format stands for."""
    if response_format is None:
        return None
    kind = response_format.get("type")
    if kind == "json_object":
        return '{"type": "object"}'
    described = response_format.get("json_schema")
    schema = described.get("schema") if kind == "json_schema" and isinstance(described, dict) else None
    if not isinstance(schema, dict):
        raise InvalidRequestError("response_format has no JSON schema", path="response_format.json_schema.schema")
    return json.dumps(msgspec.to_builtins(schema), ensure_ascii=False)
