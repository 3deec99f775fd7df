"""Hand new weights to an engine, and say on the pool that they speak now."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Protocol

from agentworld.config import ModelSettings
from agentworld.engines.vllm import BuiltinEngine
from agentworld.errors import ConfigError
from agentworld.records import Policy

RELOAD_SECONDS = 120.0


class PolicyBoard(Protocol):
    """The part of a pool that publishing needs."""

    def set_policy(self, policy: Policy) -> Policy:
        """See Pool.set_policy."""


def publish(engine_url: str, weights: Path, policy: Policy, board: PolicyBoard) -> None:
    """Load `weights` (a folder with model.safetensors, on the engine's machine), then publish the policy.

    In this order no reply is stamped newer than the weights that spoke; the engine itself reports a change within a
    reply. For the builtin engine.
    """
    asyncio.run(_reload(engine_url, weights.resolve(), policy))
    board.set_policy(policy)


def check_engine(engine_url: str, model: str) -> None:
    """EngineUnreachableError where no engine answers, ConfigError where it does not serve `model`."""
    served = asyncio.run(_models(engine_url, model))
    if model not in served:
        raise ConfigError(
            f"the engine at {engine_url} serves {', '.join(served) or 'no model'}, not {model}", path="publish.model"
        )


async def _models(engine_url: str, model: str) -> list[str]:
    engine = BuiltinEngine(ModelSettings(name=model, upstream=engine_url, driver="builtin"), RELOAD_SECONDS)
    try:
        return [card.name for card in await engine.models()]
    finally:
        await engine.close()


async def _reload(engine_url: str, weights: Path, policy: Policy) -> None:
    engine = BuiltinEngine(ModelSettings(name=policy.model, upstream=engine_url, driver="builtin"), RELOAD_SECONDS)
    try:
        await engine.reload(str(weights), policy)
    finally:
        await engine.close()
