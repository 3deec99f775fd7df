"""Frozen settings of the server, read from TOML, the environment and the command line (later wins)."""

from __future__ import annotations

import contextlib
import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import msgspec.inspect

from agentworld.errors import ConfigError
from agentworld.loopback import is_loopback

T = TypeVar("T")
DriverName = Literal["vllm", "sglang", "llamacpp", "openai", "anthropic", "builtin"]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Space = Literal["raw", "temperature", "processed"]
TokenMode = Literal["auto", "engine", "token-in", "none"]
# Tokenizers that are opened by name.
TOKENIZERS = ("pocket", "byte", "qwen3", "smollm2")
Count = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Version = Annotated[int, msgspec.Meta(ge=0)]
Penalty = Annotated[float, msgspec.Meta(ge=-2, le=2)]


class ModelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model on the gateway: where it answers and how its tokens are had.

    `api_key` is sent to the upstream only. `channel` overrides the channel of steps by this model (for judges,
    teachers). `tokenizer`: a folder, a tokenizer.json or one of TOKENIZERS, needed by token-in.
    `logprob_space`: where in sampling the engine takes log-probabilities, where it differs from its kind's default.
    `upstreams`: further engines with the same model and weights. `concurrency`: most calls at once on each engine, by
    all workers of one server together; more wait, up to `queue` for each engine and worker, `queue_seconds` long.
    `retries`: further tries of a call of which the caller has seen nothing. `media`: whether the model sees images;
    unset, where engines of its kind can. `efforts`: values of `reasoning_effort` that an API behind the driver `openai`
    takes; unset, all at OpenAI's own, low, medium and high elsewhere. `control_tokens`: what token-in does with control
    tokens that callers write in text: plain text of them, or an error. `first_token_seconds`: how long an engine that
    is asked for a stream may take to begin it; unset, as long as the call.
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
    logprob_space: Space | None = None
    upstreams: tuple[str, ...] = ()
    concurrency: Count | None = None
    queue: Annotated[int, msgspec.Meta(ge=0)] = 256
    queue_seconds: Seconds = 60.0
    retries: Annotated[int, msgspec.Meta(ge=0, le=10)] = 2
    media: bool | None = None
    efforts: tuple[Effort, ...] | None = None
    control_tokens: Literal["escape", "refuse"] = "escape"
    first_token_seconds: Seconds | None = None

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where its engines answer."""
        return (self.upstream, *self.upstreams)


class SamplingOverrides(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sampling parameters that hold whatever the caller asks for; those that are None stay the caller's."""

    temperature: Annotated[float, msgspec.Meta(ge=0)] | None = None
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, msgspec.Meta(ge=0)] | None = None
    min_p: Share | None = None
    max_tokens: Count | None = None
    min_tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, msgspec.Meta(gt=0)] | None = None
    seed: int | None = None


class ChannelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What holds for every call of one channel."""

    sampling: SamplingOverrides = SamplingOverrides()


class MixSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A name whose turns several models answer. `base` answers where no other is drawn.

    `shares`: of each other model, points (version of the base's policy, probability), straight lines between them and
    level beyond them. `seed` changes which turns are drawn.
    """

    name: str
    base: str
    shares: dict[str, tuple[tuple[Version, Share], ...]]
    seed: int = 0


class TracesSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What holds for spans that come over OTLP.

    `channel`: where trajectories go that a trace makes; those of a key that is bound to a channel go to its own. A
    trajectory ends `quiet_seconds` after the last span, once the root of its trace has come, and without a root after
    `idle_seconds` (0: never). `max_spans` and `max_bytes` are of one request, uncompressed.
    """

    enabled: bool = True
    channel: Annotated[str, msgspec.Meta(min_length=1, max_length=256)] = "traces"
    quiet_seconds: Seconds = 10.0
    idle_seconds: Annotated[float, msgspec.Meta(ge=0)] = 600.0
    max_spans: Count = 10_000
    max_bytes: Count = 64 * 1024 * 1024


class LabelScheme(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A label that reviewers are offered on the dashboard: its name, its values, and what it is about."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    values: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=20)]
    says: str | None = None


class ServeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of `agentworld serve`; without models it serves the control API alone.

    `gateway_url`: the origin that agents are told to call (behind a proxy, or where another server is the gateway);
    unset, it is the one that the client called. `require_keys`: ask for API keys on a loopback address too.
    `allowed_hosts`: further names that the server answers to there, and whose pages may call it. `session_key_seconds`:
    how long the key of a trajectory holds where keys are required. `body_timeout`: seconds in which a request has to
    arrive; `write_timeout`: seconds in which a client has to take each piece of a reply of a model, else it counts as
    gone; `grace`: seconds that calls in flight have after the signal that ends the server. `idle_seconds`: how long
    a trajectory of the gateway may be silent before it is closed; 0 for ever. `rewards`: a file of evaluators, or
    several that are taken as one, which a process of their own runs over the pool. `traces`: for spans of OTLP.
    `labels`: what reviewers are offered.
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
    channels: dict[str, ChannelSettings] = {}
    mix: tuple[MixSettings, ...] = ()
    require_keys: bool = False
    allowed_hosts: tuple[str, ...] = ()
    session_key_seconds: Seconds = 7 * 86_400.0
    body_timeout: Seconds = 60.0
    write_timeout: Seconds = 60.0
    grace: Seconds = 10.0
    idle_seconds: Annotated[float, msgspec.Meta(ge=0)] = 6 * 3600.0
    rewards: str | tuple[str, ...] | None = None
    traces: TracesSettings = TracesSettings()
    labels: tuple[LabelScheme, ...] = ()

    @property
    def reward_files(self) -> tuple[str, ...]:
        """The files of `rewards`."""
        return (self.rewards,) if isinstance(self.rewards, str) else self.rewards or ()

    @property
    def keys_required(self) -> bool:
        """Whether nothing goes without an API key: always where other machines can reach the server."""
        return self.require_keys or not is_loopback(self.host)


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
        hint = _way_out(message, path, kind)
        raise ConfigError(f"{source}: {message}", path=_named(path, str(error), data, kind), hint=hint) from None


@contextlib.contextmanager
def blamed(source: str) -> Iterator[None]:
    """Errors of the configuration begin with the file, or the place in one, that they are about."""
    try:
        yield
    except ConfigError as error:
        if error.message.startswith(f"{source}: "):
            raise
        raise ConfigError(f"{source}: {error.message}", path=error.path, hint=error.hint) from None


_ANY_KEY = "[...]"
"""How msgspec writes a key of a table whose keys are the user's."""


def _named(path: str | None, said: str, data: Any, kind: type[Any]) -> str | None:
    """The path with the keys of the user's tables in it, such as `$.channels.val`: the one that alone is faulty."""
    if path is None or _ANY_KEY not in path:
        return path
    before = path.partition(_ANY_KEY)[0]
    places = [int(index) if index else name for name, index in re.findall(r"\.(\w+)|\[(\d+)\]", before)]
    table = data
    for place in places:
        table = table[place]
    for key in table:
        try:
            msgspec.convert(_with(data, places, {key: table[key]}), kind, strict=False)
        except msgspec.ValidationError as error:
            if str(error) == said:
                shown = f".{key}" if re.fullmatch(r"[\w-]+", key) else f"[{key!r}]"
                return path.replace(_ANY_KEY, shown, 1)
    return path


def _with(data: Any, places: Sequence[str | int], table: Mapping[str, Any]) -> Any:
    """`data` with this table at a place in it."""
    if not places:
        return table
    first, *rest = places
    if isinstance(first, int):
        return [*data[:first], _with(data[first], rest, table), *data[first + 1 :]]
    return {**data, first: _with(data[first], rest, table)}


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
    if not names:
        return "It has no fields: leave it out"
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
