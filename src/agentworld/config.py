"""Frozen settings of the server, read from TOML, the environment and the command line (later wins)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from agentworld.errors import ConfigError

T = TypeVar("T")
DriverName = Literal["vllm", "sglang", "llamacpp", "openai", "anthropic", "builtin"]
TokenMode = Literal["auto", "engine", "token-in", "none"]


class ModelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model on the gateway: where it answers and how its tokens are had.

    `api_key` is sent to the upstream only. `channel` overrides the channel of steps by this model (for judges,
    teachers). `tokenizer`: a folder or tokenizer.json, needed by token-in.
    """

    name: str
    upstream: str
    driver: DriverName = "vllm"
    tokens: TokenMode = "auto"
    tokenizer: str | None = None
    api_key: str | None = None
    channel: str | None = None
    renderer: dict[str, Any] = {}
    context: int | None = None


class ServeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of `agentworld serve`; without models it serves the control API alone.

    `gateway_url`: the origin that agents are told to call (behind a proxy, or where another server is the gateway);
    unset, it is the one that the client called.
    """

    pool: str = "sqlite:///agentworld.db"
    models: tuple[ModelSettings, ...] = ()
    host: str = "127.0.0.1"
    port: int = 8400
    workers: int = 1
    strict_models: bool = False
    max_body_bytes: int = 64 * 1024 * 1024
    upstream_timeout: float = 600.0
    gateway_url: str | None = None


def read_toml(path: str | Path) -> dict[str, Any]:
    """The TOML file as a dict; ConfigError with the line and what to do where it cannot be read."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist", hint="Check the path of the configuration file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"{path} is not valid TOML: {error}", hint="Correct the line that the message names"
        ) from None


def convert(data: Mapping[str, Any], kind: type[T], source: str) -> T:
    """`data` as a settings struct; ConfigError names the field."""
    try:
        return msgspec.convert(data, kind, strict=False)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at ")
        raise ConfigError(f"{source}: {message}", path=where.strip("`") or None) from None
