"""Frozen settings of the server, read from TOML, the environment and the command line (later wins)."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import msgspec.inspect

from agentworld.errors import ConfigError

T = TypeVar("T")
DriverName = Literal["vllm", "builtin", "openai"]
TokenMode = Literal["auto", "engine", "token-in", "none"]
# Tokenizers that are opened by name.
TOKENIZERS = ("pocket", "byte", "smollm2")


class ModelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model on the gateway: where it answers and how its tokens are had.

    `api_key` is sent to the upstream only. `channel` overrides the channel of steps by this model (for judges,
    teachers). `tokenizer`: a folder, a tokenizer.json or one of TOKENIZERS, needed by token-in.
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
    """`data` as a settings struct; ConfigError names the field, and the known ones or the values that it takes."""
    try:
        return msgspec.convert(data, kind, strict=False)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at ")
        path = where.strip("`") or None
        raise ConfigError(f"{source}: {message}", path=path, hint=_way_out(message, path, kind)) from None


def _way_out(message: str, path: str | None, kind: type[Any]) -> str | None:
    """What to do about a complaint of msgspec: the field that was probably meant, or the values that are known."""
    if "invalid enum value" in message.lower():
        place = _type_at(kind, path)
        known = place.values if isinstance(place, msgspec.inspect.LiteralType) else None
        return f"Use {', '.join(map(str, known))}" if known else None
    unknown = re.search(r"unknown field `(.+)`", message)
    place = _type_at(kind, path)
    if unknown is None or not isinstance(place, msgspec.inspect.StructType):
        return None
    names = [field.encode_name for field in place.fields]
    near = difflib.get_close_matches(unknown[1], names, n=1)
    return f"Did you mean {near[0]}?" if near else f"Known fields: {', '.join(names)}"


def _type_at(kind: type[Any], path: str | None) -> msgspec.inspect.Type:
    """The type that a path of msgspec's such as `$.models[0].driver` leads to; of several, the one that is not None."""
    here = _chosen(msgspec.inspect.type_info(kind))
    for name in re.findall(r"\.(\w+)|\[(?:\d+|\.\.\.)\]", path or ""):
        if isinstance(here, msgspec.inspect.StructType):
            here = next((_chosen(field.type) for field in here.fields if field.encode_name == name), here)
        elif isinstance(here, msgspec.inspect.DictType):
            here = _chosen(here.value_type)
        elif isinstance(here, msgspec.inspect.VarTupleType | msgspec.inspect.ListType):
            here = _chosen(here.item_type)
    return here


def _chosen(kind: msgspec.inspect.Type) -> msgspec.inspect.Type:
    if not isinstance(kind, msgspec.inspect.UnionType):
        return kind
    return next(each for each in kind.types if not isinstance(each, msgspec.inspect.NoneType))
