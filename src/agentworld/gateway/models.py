"""The models on this gateway: which engine answers, and where the tokens of its steps come from."""

from __future__ import annotations

from typing import Any, Literal

import structlog

from agentworld.config import ModelSettings, ServeSettings
from agentworld.dialects.exchange import Request
from agentworld.engines.base import Engine, open_engine
from agentworld.errors import AgentWorldError, ConfigError, NotFoundError
from agentworld.gateway.token_in import TokenIn, open_token_in

log = structlog.get_logger("agentworld.gateway")

Mode = Literal["engine", "token-in", "none"]


class ModelNotFoundError(NotFoundError):
    """No model of that name is on this gateway."""

    code = "model_not_found"


class ServedModel:
    """One model with its engine. `mode` is where tokens come from, `reason` why it is that one."""

    def __init__(self, settings: ModelSettings, engine: Engine) -> None:
        self.settings = settings
        self.engine = engine
        self.token_in: TokenIn | None = None
        self.mode, self.reason = self._choose()
        self.vocabulary: str = self.token_in.vocabulary if self.token_in is not None else f"model:{settings.name}"
        self._confirmed = False
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
        return "engine", "there is no tokenizer, and the engine is expected to give ids"

    def observe(self, has_ids: bool) -> None:
        """Learn from a reply whether the engine gives ids; says so at once where it does not."""
        if self.mode != "engine" or self._confirmed:
            return
        if has_ids:
            self._confirmed = True
            self.reason = "the engine gives ids"
        elif self.settings.tokens == "auto":
            self.mode, self.reason = "none", "the engine gave a reply without ids"
            log.warning("model", model=self.settings.name, tokens="none", reason=self.reason)

    async def count(self, request: Request) -> int:
        """How many tokens the prompt of a request has; NotFoundError where only the engine could say."""
        if self.token_in is None:
            raise NotFoundError(
                f"prompts of {self.settings.name} are rendered by its engine, so tokens cannot be counted here",
                hint="Serve the model with --tokenizer, which also keeps prompts exact",
            )
        return await self.token_in.count(request)

    async def status(self) -> dict[str, Any]:
        """For /readyz: whether the engine answers, and the token mode."""
        out: dict[str, Any] = {"model": self.settings.name, "tokens": self.mode, "reason": self.reason, "ready": True}
        try:
            names = [card.name for card in await self.engine.models()]
        except AgentWorldError as error:
            return {**out, "ready": False, "error": error.one_line()}
        if names and self.settings.name not in names:
            out["error"] = f"the engine serves {', '.join(names[:5])}, not {self.settings.name}"
        return out


class Models:
    """All models; a name that is not known goes to the only model unless `strict`."""

    def __init__(self, settings: ServeSettings) -> None:
        self._strict = settings.strict_models
        self.by_name: dict[str, ServedModel] = {}
        for model in settings.models:
            if model.name in self.by_name:
                raise ConfigError(f"two models are named {model.name!r}", path="models.name")
            self.by_name[model.name] = ServedModel(model, open_engine(model, settings.upstream_timeout))

    def find(self, name: str) -> ServedModel:
        """The model for a requested name; ModelNotFoundError names those that are there."""
        found = self.by_name.get(name)
        if found is not None:
            return found
        if len(self.by_name) == 1 and not self._strict:
            return next(iter(self.by_name.values()))
        known = ", ".join(self.by_name) or "none"
        raise ModelNotFoundError(
            f"there is no model {name[:100]!r} here", path="model", hint=f"Models on this gateway: {known}"
        )

    def listing(self) -> dict[str, Any]:
        """The body of /v1/models."""
        data = []
        for name, model in self.by_name.items():
            card: dict[str, Any] = {"id": name, "object": "model", "created": 0, "owned_by": "agentworld"}
            if model.settings.context is not None:
                card["max_model_len"] = model.settings.context
            data.append(card)
        return {"object": "list", "data": data}

    async def close(self) -> None:
        """Let go of all connections."""
        for model in self.by_name.values():
            await model.engine.close()
