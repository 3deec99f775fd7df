"""The models on this gateway: which engine answers, and where the tokens of its steps come from."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

import structlog

from agentworld.config import ModelSettings, ServeSettings
from agentworld.dialects.exchange import Choice, Request
from agentworld.dialects.media import has_media
from agentworld.engines.base import Capabilities, Engine
from agentworld.errors import ConfigError, NotFoundError
from agentworld.gateway.attempts import Attempts
from agentworld.gateway.clock import Clock, MonotonicClock
from agentworld.gateway.mixing import open_mixes
from agentworld.gateway.token_in import TokenIn, open_token_in
from agentworld.gateway.upstreams import EngineFigures, Upstreams

log = structlog.get_logger("agentworld.gateway")

Mode = Literal["engine", "token-in", "none"]
FIRST_PROBE_SECONDS = 0.05
PROBE_SECONDS = 5.0
"""Between two looks at the engines."""


class ModelNotFoundError(NotFoundError):
    """No model of that name is on this gateway."""

    code = "model_not_found"


class ServedModel:
    """One model with its engines. `mode` is where tokens come from, `reason` why it is that one."""

    def __init__(self, settings: ModelSettings, upstreams: Upstreams, timeout: float, clock: Clock) -> None:
        self.settings = settings
        self.upstreams = upstreams
        self._timeout = timeout
        self._clock = clock
        self.token_in: TokenIn | None = None
        self.mode, self.reason = self._choose()
        self.vocabulary: str = self.token_in.vocabulary if self.token_in is not None else f"model:{settings.name}"
        if self.mode == "token-in":
            for upstream in upstreams.all:
                upstream.vocabulary = self.vocabulary
        self._confirmed = False
        self.without_ids = 0
        """Replies that lacked ids though the mode has some."""
        log.info("model", model=settings.name, driver=settings.driver, tokens=self.mode, reason=self.reason)

    def _choose(self) -> tuple[Mode, str]:
        asked, able = self.settings.tokens, self.engine.capabilities
        if asked == "none":
            return "none", "set so"
        if asked == "token-in":
            if not able.token_in:
                raise ConfigError(
                    f"the driver {self.settings.driver} of {self.settings.name} takes no token ids",
                    path="models.tokens",
                )
            if self.settings.tokenizer is None:
                raise ConfigError(
                    f"token-in needs the tokenizer of {self.settings.name}",
                    path="models.tokenizer",
                    hint="Set tokenizer to the folder that holds its tokenizer.json",
                )
            self.token_in = open_token_in(self.settings)
            return "token-in", f"set so, renderer {self.token_in.rendering({}).name}"
        if asked == "engine":
            if not able.ids:
                raise ConfigError(
                    f"the driver {self.settings.driver} of {self.settings.name} gives no ids", path="models.tokens"
                )
            return "engine", "set so"
        if not able.ids:
            return "none", f"the driver {self.settings.driver} gives text only"
        if self.settings.tokenizer is not None and able.token_in:
            self.token_in = open_token_in(self.settings)
            return "token-in", f"the tokenizer is there, renderer {self.token_in.rendering({}).name}"
        return "engine", f"there is no tokenizer, and the engine is expected to give ids{_asked_plain(able)}"

    @property
    def engine(self) -> Engine:
        """The first of its engines."""
        return self.upstreams.all[0].engine

    def attempts(self, trajectory_id: str) -> Attempts:
        """The tries of one call of the trajectory."""
        return Attempts(self.upstreams, trajectory_id, self.settings.retries, self._timeout, self._clock)

    def observe(self, choices: Sequence[Choice]) -> None:
        """Learn from a reply whether the engine gives ids; says so at the first that has none."""
        if self.mode == "none":
            return
        for choice in choices:
            if choice.ids is None:
                break
        else:
            if not self._confirmed and self.mode == "engine":
                self.reason = f"the engine gives ids{_asked_plain(self.engine.capabilities)}"
            self._confirmed = True
            return
        self.without_ids += 1
        name, said = self.settings.name, next((found for choice in choices if (found := _partial(choice))), None)
        if self.without_ids == 1:
            log.error("ids_missing", model=name, driver=self.settings.driver, reason=said or "the engine gave none")
        # A reply some of whose ids are missing says that the engine has them.
        if self.settings.tokens == "auto" and self.mode == "engine" and not self._confirmed and said is None:
            self.mode, self.reason = "none", "the engine gave a reply without ids"
            log.warning("model", model=name, tokens="none", reason=self.reason)

    async def count(self, request: Request) -> int:
        """How many tokens the prompt of a request has; NotFoundError where only the engine knows and does not say."""
        if self.token_in is not None and not has_media(request.messages):
            return await self.token_in.count(request)
        counted = await self.engine.count(request)
        if counted is None:
            raise NotFoundError(
                f"prompts of {self.settings.name} are rendered by its engine, so tokens cannot be counted here",
                hint="Serve the model with --tokenizer, which also keeps prompts exact",
            )
        return counted

    async def status(self) -> dict[str, Any]:
        """For /readyz: whether an engine answers, and the token mode."""
        engines = await self.upstreams.status()
        out: dict[str, Any] = {"model": self.settings.name, "tokens": self.mode, "reason": self.reason}
        out["ready"] = any(each["ready"] for each in engines)
        errors = [each["error"] for each in engines if "error" in each]
        if errors:
            out["error"] = errors[0]
        return out | {"engines": engines}


def _partial(choice: Choice) -> str | None:
    """Why a reply has no ids, where its driver says so."""
    said = choice.metadata.get("ids_missing")
    return said if isinstance(said, str) else None


def _asked_plain(able: Capabilities) -> str:
    return "" if able.stream_ids else ", with plain replies only: streamed calls are asked plain, then streamed"


class Models:
    """All models; a name that is not known goes to the only model unless `strict`."""

    def __init__(self, settings: ServeSettings, clock: Clock | None = None) -> None:
        self._clock = clock or MonotonicClock()
        self._strict = settings.strict_models
        self.by_name: dict[str, ServedModel] = {}
        for model in settings.models:
            if model.name in self.by_name:
                raise ConfigError(f"two models are named {model.name!r}", path="models.name")
            upstreams = Upstreams(model, settings.upstream_timeout, self._clock, settings.workers)
            self.by_name[model.name] = ServedModel(model, upstreams, settings.upstream_timeout, self._clock)
        self.mixes = open_mixes(settings.mix, settings.models)

    def find(self, name: str) -> ServedModel:
        """The model for a requested name, of a mix its base; ModelNotFoundError names those that are there."""
        mix = self.mixes.get(name)
        found = self.by_name.get(name if mix is None else mix.base)
        if found is not None:
            return found
        if len(self.by_name) == 1 and not self._strict:
            return next(iter(self.by_name.values()))
        known = ", ".join((*self.by_name, *self.mixes)) or "none"
        raise ModelNotFoundError(
            f"there is no model {name[:100]!r} here", path="model", hint=f"Models on this gateway: {known}"
        )

    def figures(self) -> list[EngineFigures]:
        """Counters of every engine of every model in this process."""
        return [each.figures for model in self.by_name.values() for each in model.upstreams.all]

    async def probe(self) -> None:
        """Look at all engines soon and again and again, until cancelled."""
        await self._clock.sleep(FIRST_PROBE_SECONDS)
        while True:
            await asyncio.gather(*(model.upstreams.probe() for model in self.by_name.values()))
            await self._clock.sleep(PROBE_SECONDS)

    def listing(self) -> dict[str, Any]:
        """The body of /v1/models."""
        data = []
        for name in (*self.by_name, *self.mixes):
            model = self.find(name)
            card: dict[str, Any] = {"id": name, "object": "model", "created": 0, "owned_by": "agentworld"}
            if model.settings.context is not None:
                card["max_model_len"] = model.settings.context
            data.append(card)
        return {"object": "list", "data": data}

    async def close(self) -> None:
        """Let go of all connections."""
        for model in self.by_name.values():
            await model.upstreams.close()
