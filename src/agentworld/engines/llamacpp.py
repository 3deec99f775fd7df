"""llama.cpp's server: exact ids through `/completion`, parsed tool calls through its chat route.

Its streams leave out the ids of tokens that end inside a character, so a call whose ids matter is asked plain, and the
caller gets the whole reply as its stream. Prompts are ids always: the engine's own template and tokenizer make them
(`/apply-template`, `/tokenize`), or the gateway does. A call with tools goes to the chat route, since the engine reads
tool calls there alone; that route tells each token's id beside its log-probability, and where one is missing the reply
has none. The samplers are penalties, temperature, top_k, top_p and min_p in this order, as elsewhere; others are off.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from agentworld.config import ModelSettings
from agentworld.dialects.chat_reply import wire_messages
from agentworld.dialects.exchange import Delta, Request
from agentworld.engines import reply_fields as fields
from agentworld.engines.base import Capabilities, EngineMissingError, ModelCard, explicit
from agentworld.engines.connection import Connection
from agentworld.engines.llamacpp_wire import CompletionReader, read_chat, split_thinking
from agentworld.errors import EngineError, InvalidRequestError
from agentworld.records import Sampling

_MANY = 1000
"""More messages are written in a thread, as that takes milliseconds."""
SAMPLERS = ("penalties", "temperature", "top_k", "top_p", "min_p")


class LlamaCppEngine:
    """One model behind `llama-server`. Every sampling field is sent, set by the caller or not."""

    capabilities = Capabilities(ids=True, token_in=True, completions=True, stream_ids=False, stream_generate=False)

    def __init__(self, settings: ModelSettings, timeout: float) -> None:
        self.settings = settings
        self.connection = Connection(settings.upstream, settings.api_key, timeout)

    @asynccontextmanager
    async def chat(self, request: Request) -> AsyncIterator[AsyncIterator[Delta]]:
        """Chat with ids and log-probabilities back, unless the model's tokens are `none` or the prompt has media."""
        sampling = explicit(request.sampling)
        if len(request.messages) > _MANY:
            said = await asyncio.to_thread(self._conversation, request)
        else:
            said = self._conversation(request)
        if self.settings.tokens == "none" or any(message.media for message in request.messages):
            async with self._chat_route(said, request, sampling, None) as deltas:
                yield deltas
            return
        rendered = await self.connection.post("/apply-template", said)
        prompt = fields.text(rendered, "prompt")
        ids = await self._tokenize(prompt)
        if request.tools or sampling.response_format is not None:
            async with self._chat_route(said, request, sampling, ids) as deltas:
                yield deltas
        else:
            async with self._completion(ids, request, sampling, chat=True) as deltas:
                yield split_thinking(deltas, prompt)

    def generate(
        self, prompt_ids: Sequence[int], request: Request, sampling: Sampling
    ) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """A prompt of ids. Stop tokens are those of the model's file, which no call can add to."""
        return self._completion(list(prompt_ids), request, explicit(sampling), chat=False)

    @asynccontextmanager
    async def complete(self, request: Request) -> AsyncIterator[AsyncIterator[Delta]]:
        """A prompt of text, which the engine's tokenizer encodes as the engine itself would."""
        if not isinstance(request.prompt, str):
            raise InvalidRequestError("the prompt is not text", path="prompt")
        ids = await self._tokenize(request.prompt)
        async with self._completion(ids, request, explicit(request.sampling), chat=False) as deltas:
            yield deltas

    def _conversation(self, request: Request) -> dict[str, Any]:
        """What the engine renders, the same for its template and its chat route."""
        out: dict[str, Any] = {
            "model": self.settings.name,
            "messages": wire_messages(request, developer=self.capabilities.developer),
        }
        if request.tools:
            out["tools"] = list(request.tools)
            for name in ("tool_choice", "parallel_tool_calls"):
                if getattr(request.sampling, name) is not None:
                    out[name] = getattr(request.sampling, name)
        if request.sampling.response_format is not None:
            out["response_format"] = request.sampling.response_format
        if request.template:
            out["chat_template_kwargs"] = request.template
        return out

    async def _tokenize(self, text: str) -> list[int]:
        body = {"model": self.settings.name, "content": text, "add_special": True, "parse_special": True}
        ids = fields.ids(await self.connection.post("/tokenize", body), "tokens")
        if ids is None:
            raise EngineError("the engine encoded a prompt to nothing")
        return ids

    def _chat_route(
        self, said: dict[str, Any], request: Request, sampling: Sampling, prompt_ids: list[int] | None
    ) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """`prompt_ids`: of the prompt, where the ids of the reply are wanted, which takes a plain reply."""
        stream = request.stream and prompt_ids is None
        body = {
            **native_sampling(sampling, request.sampling),
            **said,
            "logprobs": True,
            "top_logprobs": max(request.top_logprobs, 1),
            "stream": stream,
        }
        del body["n_probs"]
        if stream:
            body["stream_options"] = {"include_usage": True}
        redactor, entries = self.connection.redactor, request.logprobs

        def read(data: bytes) -> list[Delta]:
            return read_chat(data, prompt_ids, entries=entries, tops=request.top_logprobs, redactor=redactor)

        return self.connection.deltas("/v1/chat/completions", body, read)

    def _completion(
        self, prompt_ids: list[int], request: Request, sampling: Sampling, *, chat: bool
    ) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        body = {
            **native_sampling(sampling, request.sampling),
            "prompt": prompt_ids,
            "n_probs": max(request.top_logprobs, 1),
            "return_tokens": True,
            "stream": False,
        }
        schema = _schema(sampling.response_format)
        if schema is not None:
            body["json_schema"] = schema
        reader = CompletionReader(
            prompt_ids,
            entries=request.logprobs,
            tops=request.top_logprobs,
            objects=chat,
            redactor=self.connection.redactor,
        )
        return self.connection.deltas("/completion", body, reader.read)

    async def count(self, request: Request) -> int | None:
        """How many tokens the engine makes of the conversation."""
        rendered = await self.connection.post("/apply-template", self._conversation(request))
        return len(await self._tokenize(fields.text(rendered, "prompt")))

    async def models(self) -> list[ModelCard]:
        """What is served. A server of one model answers to any name, so its card bears the name that is asked for."""
        body = await self.connection.get("/v1/models")
        names = [fields.text(item, "id") for item in fields.objects(body, "data") or []]
        if len(names) > 1:
            return [ModelCard(name=name) for name in names]
        return [ModelCard(name=self.settings.name, context=await self._context())]

    async def _context(self) -> int | None:
        """The most tokens that one call may have; None where the server has no route that tells."""
        try:
            properties = await self.connection.get("/props")
        except EngineMissingError:
            return None
        return fields.whole(fields.mapping(properties, "default_generation_settings"), "n_ctx", fields.MAX_COUNT)

    async def close(self) -> None:
        """Let go of connections."""
        await self.connection.close()


def native_sampling(sampling: Sampling, asked: Sampling) -> dict[str, Any]:
    """Sampling parameters as the server spells them; what it would add of its own is switched off.

    `asked`: what the caller set. InvalidRequestError for fields that the server does not have.
    """
    for name in ("min_tokens", "stop_token_ids"):
        if getattr(asked, name):
            raise InvalidRequestError(f"{name} is not known to llama.cpp", path=name, hint="Leave it out")
    out: dict[str, Any] = {
        "n_predict": -1 if sampling.max_tokens is None else sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repeat_penalty": sampling.repetition_penalty,
        "repeat_last_n": -1,
        "samplers": list(SAMPLERS),
        "typical_p": 1.0,
        "top_n_sigma": -1.0,
        "xtc_probability": 0.0,
        "dynatemp_range": 0.0,
        "dry_multiplier": 0.0,
        "mirostat": 0,
        "min_keep": 0,
        "n_probs": 1,
        "post_sampling_probs": False,
        "ignore_eos": False,
        "seed": -1 if sampling.seed is None else sampling.seed,
        "stop": list(sampling.stop),
        "logit_bias": [[int(token), bias] for token, bias in (sampling.logit_bias or {}).items()],
    }
    if sampling.n > 1:
        out["n"] = sampling.n
    return out


def _schema(response_format: dict[str, Any] | None) -> dict[str, Any] | None:
    """The JSON schema that a response format stands for."""
    if response_format is None or response_format.get("type") == "json_object":
        return None if response_format is None else {"type": "object"}
    described = response_format.get("json_schema")
    schema = described.get("schema") if isinstance(described, dict) else None
    if not isinstance(schema, dict):
        raise InvalidRequestError("response_format has no JSON schema", path="response_format.json_schema.schema")
    return schema
