"""What the gateway asks of an engine, whatever speaks there; drivers are one module each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from agentworld.config import ModelSettings
from agentworld.dialects.exchange import Delta, Request
from agentworld.errors import ConfigError, EngineError
from agentworld.records import LogprobSpace, Sampling


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine of this kind can do.

    `ids`: plain chat replies carry the ids of prompt and reply. `stream_ids`: streamed ones do too; where they do not,
    a streamed call whose ids matter is asked plain. `stream_generate`: calls without a template are streamed where the
    caller streams. `token_in`: prompts may be ids. `developer`: the developer role is
    known. `completions`: prompts may be text without a chat template. `media`: prompts may hold images.
    `tool_choice`: a tool call can be demanded, `structured`: a JSON schema can be, each by the chat route. `continues`:
    its chat route writes on where the last message, the assistant's, ends. `pins`: every sampling field is sent, set by
    the caller or not. `space`: of log-probabilities where neither the engine nor the settings say.
    """

    ids: bool
    token_in: bool
    stream_ids: bool = True
    stream_generate: bool = True
    developer: bool = False
    completions: bool = False
    media: bool = True
    tool_choice: bool = True
    structured: bool = True
    continues: bool = False
    pins: bool = True
    space: LogprobSpace = "raw"


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """One model that an engine serves; `context` is the most tokens of prompt and reply together, if it says so.
    `vocabulary`: the digest of its tokenizer, which our own engine tells.
    """

    name: str
    context: int | None = None
    vocabulary: str | None = None


class EngineMissingError(EngineError):
    """The engine has no such model or route."""


class EngineBusyError(EngineError):
    """The engine takes no more calls at the moment."""

    code = "rate_limit_exceeded"
    status = 429


class EngineBrokeError(EngineError):
    """The connection to the engine broke before its reply was whole."""


class EngineAbortedError(EngineError):
    """The engine cut the reply, as it does before its weights change."""

    code = "engine_aborted"
    status = 503


class EngineTimeoutError(EngineError):
    """The engine did not answer in time."""

    code = "engine_timeout"
    status = 504


class Engine(Protocol):
    """One model at one address. Leaving the context of a call cancels the engine's work on it."""

    settings: ModelSettings
    capabilities: Capabilities

    def chat(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """The engine renders and parses; deltas carry ids where it gives them."""

    def generate(
        self, prompt_ids: Sequence[int], request: Request, sampling: Sampling
    ) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Token-in: the prompt is ids; deltas carry ids, and the engine's own text of them, which is never parsed."""

    def complete(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Text completion of `request.prompt`; only where the capabilities say `completions`."""

    async def count(self, request: Request) -> int | None:
        """How many tokens the prompt of a chat has; None where the engine cannot say."""

    async def models(self) -> list[ModelCard]:
        """What the engine serves; EngineUnreachableError where nothing answers."""

    async def close(self) -> None:
        """Let go of connections."""


_NEUTRAL: dict[str, float] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
}
_MOST_KNOWN, _LONGEST_KNOWN = 256, 4096
_known: dict[bytes, Sampling] = {}


def explicit(sampling: Sampling) -> Sampling:
    """The parameters with neutral values where the caller set none, so that no default of the engine's applies.

    Calls of a run say the same, and get the same record, which is then checked for the pool once.
    """
    said = msgspec.json.encode(sampling)
    if (found := _known.get(said)) is not None:
        return found
    unset = {name: value for name, value in _NEUTRAL.items() if getattr(sampling, name) is None}
    found = msgspec.structs.replace(sampling, **unset)
    if len(said) <= _LONGEST_KNOWN:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[said] = found
    return found


def logprob_space(mode: str | None, default: LogprobSpace) -> LogprobSpace | None:
    """The space that an engine's `logprobs_mode` names; `default` where it names none, None for one unknown here.

    Such numbers (vLLM's `raw_logits`, for one) are no log-probabilities, and none may be taken for some.
    """
    spaces: dict[str, LogprobSpace] = {"raw_logprobs": "raw", "processed_logprobs": "processed"}
    return default if mode is None else spaces.get(mode)


def engine_space(engine: Engine, sampling: Sampling) -> LogprobSpace:
    """The space of an engine's log-probabilities where a reply does not say. Greedy replies have no temperature."""
    space = engine.settings.logprob_space or engine.capabilities.space
    return "raw" if space == "temperature" and sampling.temperature == 0 else space


def open_engine(settings: ModelSettings, timeout: float) -> Engine:
    """The driver that the settings name. `timeout`: seconds that a whole call may take."""
    from agentworld.engines.anthropic import AnthropicEngine
    from agentworld.engines.llamacpp import LlamaCppEngine
    from agentworld.engines.openai import OpenAIEngine
    from agentworld.engines.sglang import SglangEngine
    from agentworld.engines.vllm import BuiltinEngine, VllmEngine

    drivers: dict[str, Callable[[ModelSettings, float], Engine]] = {
        "vllm": VllmEngine,
        "sglang": SglangEngine,
        "llamacpp": LlamaCppEngine,
        "openai": OpenAIEngine,
        "anthropic": AnthropicEngine,
        "builtin": BuiltinEngine,
    }
    driver = drivers.get(settings.driver)
    if driver is None:
        raise ConfigError(
            f"the driver {settings.driver!r} of model {settings.name!r} is not available in this version",
            path="models.driver",
            hint=f"Use one of {', '.join(drivers)}",
        )
    check_address(settings.upstream, f"the upstream of {settings.name}", "models.upstream")
    return driver(settings, timeout)


def check_address(url: str, told: str, path: str) -> None:
    """Refuse an engine's address that no call could use: `told` and `path` say which. The address is not repeated, as
    it may hold a password.
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        parts, usable = None, False
    if parts is None or not usable:
        raise ConfigError(f"{told} is no HTTP address", path=path, hint="Write it as http://host:port")
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            f"{told} holds a user or password",
            path=path,
            hint="Leave them out of the address; where the engine wants a key, there is a setting for it",
        )
    if parts.query or parts.fragment:
        raise ConfigError(
            f"{told} has a query or fragment, to which no route can be added",
            path=path,
            hint="Write it as http://host:port",
        )
