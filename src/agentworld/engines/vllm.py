"""vLLM, and the builtin engine that speaks like it: chat with ids back, and completions with ids in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar

import msgspec

from agentworld.config import ModelSettings
from agentworld.dialects.chat_reply import wire_messages
from agentworld.dialects.exchange import Delta, KeptTools, Request
from agentworld.engines.base import Capabilities, ModelCard, explicit
from agentworld.engines.connection import Connection, Reader
from agentworld.engines.openai_wire import body_reader
from agentworld.records import Policy, Sampling, Tool

_MOST_RESTS = 64
"""Ends of bodies that are kept."""


class VllmEngine:
    """A model behind vLLM's OpenAI server. Every sampling field is sent, set by the caller or not."""

    capabilities = Capabilities(ids=True, token_in=True, completions=True, continues=True)
    more: ClassVar[dict[str, Any]] = {}
    """Fields that every call adds."""

    def __init__(self, settings: ModelSettings, timeout: float) -> None:
        self.settings = settings
        self.connection = Connection(settings.upstream, settings.api_key, timeout)
        self._model = msgspec.json.encode(settings.name)
        self._rests: dict[tuple[int, int, bool, int], tuple[Sampling, tuple[Tool, ...], bytes]] = {}
        self._readers: dict[tuple[str, bool], Reader] = {}

    def chat(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Chat with ids and log-probabilities back."""
        messages = msgspec.json.encode(wire_messages(request, developer=self.capabilities.developer))
        body = b'{"model":%b,"messages":%b,%b' % (self._model, messages, self._rest(request))
        return self.connection.posted("/v1/chat/completions", body, request.stream, self._reader("chat", request))

    def _rest(self, request: Request) -> bytes:
        """The body of a chat behind its messages. Calls of a run say the same there, and get the same bytes."""
        sampling, tools = explicit(request.sampling), request.tools
        if request.template or request.continue_final or (tools and not isinstance(tools, KeptTools)):
            return self._said(request, sampling)
        known = (id(sampling), id(tools), request.stream, request.top_logprobs)
        kept = self._rests.get(known)
        if kept is not None and kept[0] is sampling and kept[1] is tools:
            return kept[2]
        if len(self._rests) >= _MOST_RESTS:
            self._rests.clear()
        rest = self._said(request, sampling)
        self._rests[known] = sampling, tools, rest
        return rest

    def _said(self, request: Request, sampling: Sampling) -> bytes:
        """What `_rest` keeps."""
        body: dict[str, Any] = {
            **sampling_body(sampling),
            "logprobs": True,
            "top_logprobs": request.top_logprobs,
            "return_token_ids": True,
            **self._stream(request),
            **self.more,
        }
        if request.tools:
            body["tools"] = list(request.tools)
            if request.sampling.tool_choice is not None:
                body["tool_choice"] = request.sampling.tool_choice
        if request.sampling.parallel_tool_calls is not None and request.tools:
            body["parallel_tool_calls"] = request.sampling.parallel_tool_calls
        if request.template:
            body["chat_template_kwargs"] = request.template
        if request.continue_final:
            body |= {"add_generation_prompt": False, "continue_final_message": True}
        return msgspec.json.encode(body)[1:]

    def generate(
        self, prompt_ids: Sequence[int], request: Request, sampling: Sampling
    ) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Completions of a prompt of ids. `max_tokens` null is the rest of the context, not the route's default."""
        return self._completions(list(prompt_ids), request, sampling)

    def complete(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Completions of a prompt of text, which the engine encodes."""
        return self._completions(request.prompt, request, request.sampling)

    def _completions(
        self, prompt: Any, request: Request, sampling: Sampling
    ) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        body: dict[str, Any] = {
            "model": self.settings.name,
            "prompt": prompt,
            "max_tokens": None,
            **sampling_body(explicit(sampling)),
            "logprobs": request.top_logprobs,
            "return_token_ids": True,
            **self._stream(request),
            **self.more,
        }
        return self.connection.deltas("/v1/completions", body, self._reader("completions", request))

    def _reader(self, kind: str, request: Request) -> Reader:
        known = kind, request.logprobs
        reader = self._readers.get(known)
        if reader is None:
            reader = body_reader(self.connection.redactor, kind=kind, entries=request.logprobs)
            self._readers[known] = reader
        return reader

    def _stream(self, request: Request) -> dict[str, Any]:
        return {"stream": True, "stream_options": {"include_usage": True}} if request.stream else {"stream": False}

    async def count(self, request: Request) -> int | None:
        """Not asked of these engines."""
        return None

    async def models(self) -> list[ModelCard]:
        """`/v1/models`, with the context and the vocabulary where the engine tells them."""
        body = await self.connection.get("/v1/models")
        cards = []
        for item in body.get("data") or []:
            if isinstance(item, dict) and isinstance(item.get("id"), str):
                context, vocabulary = item.get("max_model_len"), item.get("vocabulary_digest")
                cards.append(
                    ModelCard(
                        name=item["id"],
                        context=context if isinstance(context, int) else None,
                        vocabulary=vocabulary if isinstance(vocabulary, str) else None,
                    )
                )
        return cards

    async def close(self) -> None:
        """Let go of connections."""
        await self.connection.close()


class BuiltinEngine(VllmEngine):
    """The local engine: as vLLM, with log-probabilities of the distribution that was sampled from."""

    capabilities = Capabilities(
        ids=True, token_in=True, completions=True, media=False, tool_choice=False, structured=False, space="processed"
    )
    more: ClassVar[dict[str, Any]] = {"logprobs_mode": "processed_logprobs"}

    async def reload(self, path: str, policy: Policy) -> dict[str, Any]:
        """Load the weights at `path` (on the engine's machine) as `policy`; calls in flight go on with them."""
        return await self.connection.post("/reload", {"path": path, "version": policy.version, "run": policy.run})


def sampling_body(sampling: Sampling) -> dict[str, Any]:
    """The fields that are set, as vLLM spells them; tool fields are the caller's own."""
    body: dict[str, Any] = msgspec.to_builtins(sampling)
    for name in ("tool_choice", "parallel_tool_calls"):
        body.pop(name, None)
    body["n"] = sampling.n
    if sampling.top_k == 0:
        body["top_k"] = -1  # All tokens; releases before 0.9 refuse 0.
    return body
