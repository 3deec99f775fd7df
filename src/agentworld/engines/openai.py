"""Any OpenAI-compatible API that gives text and no ids; its steps are text-only.

A call that came in by chat completions goes on as it came, but for the model's name, fields of open engines, and
parameters that the settings fix. Other calls are translated; OpenAI's own service then gets the limit as
`max_completion_tokens`, the only one that its newer models take.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any
from urllib.parse import urlsplit

from agentworld.config import ModelSettings
from agentworld.dialects.chat_reply import shorten_ids, wire_messages
from agentworld.dialects.exchange import Delta, Request
from agentworld.engines.base import Capabilities
from agentworld.engines.vllm import VllmEngine, sampling_body
from agentworld.errors import InvalidRequestError
from agentworld.records import Sampling

_UNKNOWN: dict[str, tuple[Any, ...]] = {
    "top_k": (None, 0),
    "min_p": (None, 0.0),
    "min_tokens": (None, 0),
    "repetition_penalty": (None, 1.0),
    "stop_token_ids": ((),),
}
"""Sampling fields that the API lacks, each with the values that mean as much as leaving it out."""
_OPEN_ONLY = frozenset(
    {"return_token_ids", "chat_template_kwargs", "add_generation_prompt", "add_special_tokens", "echo", "ignore_eos"}
    | {"continue_final_message", "include_stop_str_in_output", "skip_special_tokens", "use_beam_search", "cache_salt"}
    | {"priority", "request_id", "include_reasoning", "spaces_between_special_tokens"}
)
_FIXED = ("temperature", "top_p", "seed", "presence_penalty", "frequency_penalty")
_OPENAI = ("openai.com", "openai.azure.com")
_EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max")
"""How much a model shall think, from the least; `none` is not to think at all."""
_COMMON_EFFORTS = ("low", "medium", "high")
_LONGEST_ID = 40
"""OpenAI refuses longer ids of tool calls."""


class OpenAIEngine(VllmEngine):
    """Sends what the caller set and nothing else, since these APIs refuse fields that they do not know."""

    capabilities = Capabilities(ids=False, token_in=False, developer=True, completions=True, pins=False)

    def __init__(self, settings: ModelSettings, timeout: float) -> None:
        super().__init__(settings, timeout)
        host = urlsplit(settings.upstream).hostname or ""
        own = any(host == name or host.endswith(f".{name}") for name in _OPENAI)
        self._limit = "max_completion_tokens" if own else "max_tokens"
        given = settings.efforts
        self._efforts: tuple[str, ...] = given if given is not None else ("none", *_EFFORTS) if own else _COMMON_EFFORTS

    def chat(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Chat with text back; fields that the API lacks are refused."""
        self._refuse_unknown(request.sampling)
        own = request.raw if request.dialect == "chat" else None
        effort = self._effort(request, request.template if own is None else own.get("chat_template_kwargs") or {})
        body = (self._own(request, own) if own is not None else self._translated(request)) | effort
        return self.connection.deltas("/v1/chat/completions", body, self._reader("chat", request))

    def _effort(self, request: Request, template: dict[str, Any]) -> dict[str, Any]:
        """The effort, and those of the template's settings that the API has fields for; the others are refused."""
        effort = template.get("reasoning_effort", request.effort)
        thinking = template.get("enable_thinking")
        if thinking is False:
            # Messages without thinking are asked for by leaving it out as well, which needs no field.
            effort = "none" if request.dialect != "anthropic" or "none" in self._efforts else None
        out: dict[str, Any] = {} if effort is None else {"reasoning_effort": self._known_effort(effort)}
        out |= {"verbosity": template["verbosity"]} if "verbosity" in template else {}
        if thinking not in (None, False) or template.keys() - {"reasoning_effort", "verbosity", "enable_thinking"}:
            raise InvalidRequestError(
                f"chat_template_kwargs is not known to the API behind {self.settings.name}",
                path="chat_template_kwargs",
                hint="Leave it out",
            )
        return out

    def _known_effort(self, effort: Any) -> Any:
        """The effort, or the nearest one that the API takes; of two as near, the lower."""
        if effort in self._efforts:
            return effort
        known = [name for name in _EFFORTS if name in self._efforts]
        if effort not in _EFFORTS or not known:
            raise InvalidRequestError(
                f"the effort {str(effort)[:40]!r} is not known to the API behind {self.settings.name}",
                path="reasoning_effort",
                hint="Leave it out, or name it in efforts of the model where the API takes it",
            )
        wanted = _EFFORTS.index(effort)
        return min(known, key=lambda name: abs(_EFFORTS.index(name) - wanted))

    def _own(self, request: Request, raw: dict[str, Any]) -> dict[str, Any]:
        """The caller's body, and with a stream the usage, which goes on record."""
        body = {name: value for name, value in raw.items() if name not in _OPEN_ONLY and name not in _UNKNOWN}
        sampling = request.sampling
        body |= {name: value for name in _FIXED if (value := getattr(sampling, name)) is not None}
        if sampling.max_tokens is not None:
            limits = [name for name in ("max_completion_tokens", "max_tokens") if body.get(name) is not None]
            body |= dict.fromkeys(limits or [self._limit], sampling.max_tokens)
        body["model"] = self.settings.name
        body["messages"] = shorten_ids(raw["messages"], _LONGEST_ID)
        if request.stream:
            body["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
        return body

    def _translated(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.settings.name,
            "messages": shorten_ids(wire_messages(request, developer=True, images_of_tools=False), _LONGEST_ID),
            **self._sampling(request.sampling),
            **self._stream(request),
        }
        if self._limit != "max_tokens" and "max_tokens" in body:
            body[self._limit] = body.pop("max_tokens")
        if request.tools:
            body["tools"] = list(request.tools)
            for name in ("tool_choice", "parallel_tool_calls"):
                if getattr(request.sampling, name) is not None:
                    body[name] = getattr(request.sampling, name)
        if request.logprobs:
            body |= {"logprobs": True, "top_logprobs": request.top_logprobs}
        return body

    def complete(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Text completion with text back; fields that the API lacks are refused."""
        self._refuse_unknown(request.sampling)
        body: dict[str, Any] = {
            "model": self.settings.name,
            "prompt": request.prompt,
            **self._sampling(request.sampling),
            **self._stream(request),
        }
        if request.logprobs:
            body["logprobs"] = request.top_logprobs
        return self.connection.deltas("/v1/completions", body, self._reader("completions", request))

    def _sampling(self, sampling: Sampling) -> dict[str, Any]:
        return {name: value for name, value in sampling_body(sampling).items() if name not in _UNKNOWN}

    def _refuse_unknown(self, sampling: Sampling) -> None:
        for name, neutral in _UNKNOWN.items():
            if getattr(sampling, name) not in neutral:
                raise InvalidRequestError(
                    f"{name} is not known to the API behind {self.settings.name}", path=name, hint="Leave it out"
                )

    def generate(
        self, prompt_ids: Sequence[int], request: Request, sampling: Sampling
    ) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Not offered by these APIs."""
        raise InvalidRequestError(f"{self.settings.name} takes no token ids", path="model")
