"""Any OpenAI-compatible API that gives text and no ids; its steps are text-only."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from agentworld.dialects.chat_reply import wire_message
from agentworld.dialects.exchange import Delta, Request
from agentworld.engines.base import Capabilities
from agentworld.engines.vllm import VllmEngine, sampling_body
from agentworld.errors import InvalidRequestError
from agentworld.records import Sampling

_UNKNOWN = ("top_k", "min_p", "min_tokens", "repetition_penalty", "stop_token_ids")


class OpenAIEngine(VllmEngine):
    """Sends what the caller set and nothing else, since these APIs refuse fields that they do not know."""

    capabilities = Capabilities(ids=False, token_in=False, developer=True, completions=True, pins=False)

    def chat(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Chat with text back; fields that the API lacks are refused."""
        self._refuse_unknown(request.sampling)
        if request.template:
            raise InvalidRequestError(
                f"chat_template_kwargs is not known to the API behind {self.settings.name}",
                path="chat_template_kwargs",
                hint="Leave it out",
            )
        body: dict[str, Any] = {
            "model": self.settings.name,
            "messages": [wire_message(message) for message in request.messages],
            **sampling_body(request.sampling),
            **self._stream(request),
        }
        if request.sampling.top_k is not None:
            body.pop("top_k", None)
        if request.tools:
            body["tools"] = list(request.tools)
            for name in ("tool_choice", "parallel_tool_calls"):
                if getattr(request.sampling, name) is not None:
                    body[name] = getattr(request.sampling, name)
        if request.logprobs:
            body |= {"logprobs": True, "top_logprobs": request.top_logprobs}
        return self.connection.deltas("/v1/chat/completions", body, self._reader("chat", request))

    def complete(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Text completion with text back; fields that the API lacks are refused."""
        self._refuse_unknown(request.sampling)
        body: dict[str, Any] = {
            "model": self.settings.name,
            "prompt": request.prompt,
            **sampling_body(request.sampling),
            **self._stream(request),
        }
        body.pop("top_k", None)
        if request.logprobs:
            body["logprobs"] = request.top_logprobs
        return self.connection.deltas("/v1/completions", body, self._reader("completions", request))

    def _refuse_unknown(self, sampling: Sampling) -> None:
        for name in _UNKNOWN:
            if getattr(sampling, name):
                raise InvalidRequestError(
                    f"{name} is not known to the API behind {self.settings.name}", path=name, hint="Leave it out"
                )

    def generate(
        self, prompt_ids: Sequence[int], request: Request, sampling: Sampling
    ) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Not offered by these APIs."""
        raise InvalidRequestError(f"{self.settings.name} takes no token ids", path="model")
