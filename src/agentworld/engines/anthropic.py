"""Anthropic's Messages API: text without ids.

A call that came in by the same API goes on as it came, but for the model's name and parameters that the settings fix;
with it go `anthropic-version` and `anthropic-beta`. Other calls are translated: see `anthropic_request`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any
from urllib.parse import quote

from agentworld.config import ModelSettings
from agentworld.dialects.exchange import Delta, Request
from agentworld.engines import reply_fields as fields
from agentworld.engines.anthropic_reply import MessageReader, ends_message
from agentworld.engines.anthropic_request import refuse_unknown, translated
from agentworld.engines.base import Capabilities, EngineMissingError, ModelCard
from agentworld.engines.connection import Connection
from agentworld.errors import InvalidRequestError
from agentworld.records import Sampling

VERSION = "2023-06-01"
_FIXED = ("temperature", "top_p", "top_k", "max_tokens")
_UNCOUNTED = ("max_tokens", "stream", "temperature", "top_p", "top_k", "stop_sequences", "metadata", "service_tier")
"""Fields of a call that the route which counts tokens does not take."""


class AnthropicEngine:
    """One model of Anthropic's service, or of one that speaks like it. The key goes into `x-api-key`."""

    capabilities = Capabilities(ids=False, token_in=False, developer=False, continues=True, pins=False)

    def __init__(self, settings: ModelSettings, timeout: float) -> None:
        self.settings = settings
        self.connection = Connection(settings.upstream, settings.api_key, timeout, key_header="x-api-key")

    def chat(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """The reply as text; fields that the API lacks are refused."""
        body = self._body(request)
        reader = MessageReader(self.connection.redactor, max_tokens=_added_limit(request, body))
        return self.connection.deltas(_route(request), body, reader.read, headers=_headers(request), ends=ends_message)

    def _body(self, request: Request) -> dict[str, Any]:
        raw = _own(request)
        if raw is None:
            return {"model": self.settings.name, **translated(request), "stream": request.stream}
        refuse_unknown(request.sampling)
        body = {**raw, "model": self.settings.name}
        for name in _FIXED:
            value = getattr(request.sampling, name)
            if value is not None:
                body[name] = value
        return body

    def generate(
        self, prompt_ids: Sequence[int], request: Request, sampling: Sampling
    ) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Not offered by this API."""
        raise InvalidRequestError(f"{self.settings.name} takes no token ids", path="model")

    def complete(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Not offered by this API."""
        raise InvalidRequestError(f"{self.settings.name} has no text completions", path="model")

    async def count(self, request: Request) -> int | None:
        """How many tokens the service counts in the prompt."""
        body = self._body(request)
        for name in _UNCOUNTED:
            body.pop(name, None)
        path = _route(request).replace("/messages", "/messages/count_tokens")
        counted = await self.connection.post(path, body, headers=_headers(request))
        return fields.whole(counted, "input_tokens", fields.MAX_COUNT)

    async def models(self) -> list[ModelCard]:
        """The model itself where the service knows it, under this name or as an alias; else those that it lists."""
        headers = {"anthropic-version": VERSION}
        try:
            await self.connection.get(f"/v1/models/{quote(self.settings.name, safe='')}", headers=headers)
            return [ModelCard(name=self.settings.name)]
        except EngineMissingError:
            pass
        try:
            body = await self.connection.get("/v1/models?limit=1000", headers=headers)
        except EngineMissingError:
            return []  # Services that speak like Anthropic's need not have these routes.
        return [ModelCard(name=fields.text(item, "id")) for item in fields.objects(body, "data") or []]

    async def close(self) -> None:
        """Let go of connections."""
        await self.connection.close()


def _own(request: Request) -> dict[str, Any] | None:
    """The caller's body, where it is of this API."""
    return request.raw if request.dialect == "anthropic" else None


def _route(request: Request) -> str:
    return "/v1/messages?beta=true" if "anthropic-beta" in request.forwarded else "/v1/messages"


def _headers(request: Request) -> dict[str, str]:
    return {"anthropic-version": VERSION, **request.forwarded}


def _added_limit(request: Request, body: dict[str, Any]) -> int | None:
    """The limit that the caller did not set: the API demands one."""
    limit: int | None = body.get("max_tokens")
    return limit if request.sampling.max_tokens is None else None
