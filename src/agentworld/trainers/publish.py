"""Hand new weights to engines, and say on the pool that they speak now."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from agentworld.engines.base import check_address
from agentworld.errors import AgentWorldError, ConfigError
from agentworld.pool.results import Drain
from agentworld.records import Policy
from agentworld.trainers.weight_servers import SERVERS, BuiltinServer, WeightServer

_LOG = logging.getLogger(__name__)
RELOAD_SECONDS = 120.0


class PublishTo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The engines that load each checkpoint, and the name of their model.

    `driver`: what they are. `load`: whole weights, or the adapter as the model of that name; by default what is trained
    where the engine is vLLM, else weights. `pause`: no call is in flight while they load; by default for all but the
    builtin engine. `running`: what is in flight then is waited for up to `drain_seconds`, or cut and written on by the
    gateway. `timeout`: seconds for one engine to load. `api_key_env`: the environment variable with the engines' key.
    """

    engine: str | tuple[str, ...]
    model: str
    driver: Literal["builtin", "vllm", "sglang"] = "builtin"
    load: Literal["weights", "adapter"] | None = None
    pause: bool | None = None
    running: Literal["wait", "cut"] = "wait"
    drain_seconds: float = 120.0
    timeout: float = 600.0
    api_key_env: str | None = None

    @property
    def engines(self) -> tuple[str, ...]:
        """Their addresses."""
        return (self.engine,) if isinstance(self.engine, str) else self.engine

    @property
    def pauses(self) -> bool:
        """Whether the gateways pause while weights change."""
        return self.driver != "builtin" if self.pause is None else self.pause

    def loads_adapter(self, lora: bool) -> bool:
        """Whether the engines are given the adapter alone."""
        return self.load == "adapter" or (self.load is None and lora and self.driver == "vllm")


class PolicyBoard(Protocol):
    """The part of a pool that publishing needs."""

    def set_policy(self, policy: Policy) -> Policy:
        """See Pool.set_policy."""


class GatewayBoard(PolicyBoard, Protocol):
    """What it needs where gateways pause."""

    def set_paused(self, paused: bool) -> None:
        """See Pool.set_paused."""

    def drain(self, timeout: float = 0.0) -> Drain:
        """See Pool.drain."""


class Publisher:
    """Publishes to engines of one model. `lora`: adapters are trained."""

    def __init__(self, to: PublishTo, *, lora: bool) -> None:
        check_publish(to, lora)
        self.to = to
        self.adapter = to.loads_adapter(lora)
        key = os.environ.get(to.api_key_env) if to.api_key_env else None
        if to.api_key_env and not key:
            raise ConfigError(f"the variable {to.api_key_env} is not set", path="publish.api_key_env")
        self.servers: list[WeightServer] = [SERVERS[to.driver](url, key, to.timeout) for url in to.engines]

    def check(self) -> None:
        """EngineUnreachableError where one does not answer, ConfigError where it does not serve the model."""
        for server in self.servers:
            check_served(server, self.to.model, adapter=self.adapter)

    def publish(self, folder: Path, policy: Policy, board: GatewayBoard) -> None:
        """Load what is in `folder` (on the engines' machine too) into all of them, then publish the policy.

        In this order no reply is stamped newer than the weights that spoke. While engines that do not say themselves
        which weights speak load, the gateways are paused, so that none is stamped older either. Where only some took
        the weights the pause stays in force: two versions would speak under one name. Publishing again ends it.
        """
        folder = folder.resolve()
        if not self.to.pauses:
            for server in self.servers:
                self._load(server, folder, policy)
            board.set_policy(policy)
            return
        with self._paused(board) as state:
            for server in self.servers:
                state.touched = True
                self._load(server, folder, policy)
            board.set_policy(policy)
            state.touched = False

    def _load(self, server: WeightServer, folder: Path, policy: Policy) -> None:
        if self.adapter:
            server.load_adapter(folder, policy)
        else:
            server.load(folder, policy)

    @contextmanager
    def _paused(self, board: GatewayBoard) -> Iterator[_Update]:
        """Within it no call of a gateway is at an engine."""
        state = _Update()
        board.set_paused(True)
        try:
            if self.to.running == "cut":
                for server in self.servers:
                    server.cut()
            self._drain(board)
            yield state
        except BaseException as error:
            if not state.touched:
                self._go_on(board)
            elif isinstance(error, AgentWorldError):
                again = "Start the job again: it publishes once more, and resumes them"
                raise type(error)(
                    f"{error.message}; the gateways stay paused, as engines may have different weights now",
                    path=error.path,
                    hint=f"{error.hint}. {again}" if error.hint else again,
                ) from error
            else:
                _LOG.warning("the gateways stay paused, as engines may have different weights now; start the job again")
            raise
        self._go_on(board)

    def _drain(self, board: GatewayBoard) -> None:
        found = board.drain(self.to.drain_seconds)
        if not found.drained:
            raise AgentWorldError(
                f"{found.in_flight} calls were in flight {self.to.drain_seconds:g} s after the gateways were paused"
                + (f", and {found.unaware} workers did not know of the pause" if found.unaware else ""),
                path="publish.drain_seconds",
                hint='Raise it, or use running = "cut", after which the gateway writes replies on',
            )

    def _go_on(self, board: GatewayBoard) -> None:
        try:
            if self.to.running == "cut":
                for server in self.servers:
                    server.go_on()
        finally:
            board.set_paused(False)


class _Update:
    """`touched`: an engine was asked to load, and the pool has not heard of the policy yet."""

    touched = False


def check_publish(to: PublishTo, lora: bool) -> None:
    """ConfigError where it asks for what cannot be."""
    for url in to.engines:
        check_address(url, "an engine of publish", "publish.engine")
    if not to.engines:
        raise ConfigError("publish names no engine", path="publish.engine")
    if to.load == "adapter" and not lora:
        raise ConfigError("there is no adapter to load", path="publish.load", hint="Add a table [lora]")
    if to.load == "adapter" and to.driver == "builtin":
        raise ConfigError("the builtin engine takes whole weights alone", path="publish.load", hint='Use "weights"')
    if to.running == "cut" and not to.pauses:
        raise ConfigError("nothing is cut without a pause", path="publish.running", hint="Set pause = true")
    for name in ("timeout", "drain_seconds"):
        if not getattr(to, name) > 0:
            raise ConfigError(f"{name} must be over 0, not {getattr(to, name)}", path=f"publish.{name}")


def check_served(server: WeightServer, model: str, *, adapter: bool = False) -> None:
    """EngineUnreachableError where no engine answers, ConfigError where it does not serve `model`, unless that is an
    `adapter` that is still to come.
    """
    served = server.models()
    if model not in served and not adapter:
        raise ConfigError(
            f"the engine at {server.url} serves {', '.join(served) or 'no model'}, not {model}", path="publish.model"
        )


def publish(engine_url: str, weights: Path, policy: Policy, board: PolicyBoard) -> None:
    """Load `weights` (a folder with model.safetensors, on the engine's machine) into a builtin engine, then publish the
    policy; the engine itself reports a change within a reply.
    """
    BuiltinServer(engine_url, None, RELOAD_SECONDS).load(weights.resolve(), policy)
    board.set_policy(policy)
