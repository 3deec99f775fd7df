"""What this server is and how it is doing: its pool, its models with their engines, and what runs beside it.

Nothing here can be changed, and no secret is told: of an engine's key only whether there is one, of addresses what is
neither user nor password, of the pool's address the same.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import msgspec
from litestar import get
from litestar.datastructures import State

import agentworld
from agentworld.api.access import CALLER
from agentworld.api.bound_curation import whole
from agentworld.client.wire import API
from agentworld.config import LabelScheme, ModelSettings, ServeSettings
from agentworld.errors import AgentWorldError
from agentworld.gateway.access import check_granted
from agentworld.pool.urls import is_postgres, shown_url, sqlite_path

if TYPE_CHECKING:
    from agentworld.gateway.app import Gateway


class PoolStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The pool behind this server. `kind`: sqlite, postgresql or memory. `error`: why it cannot be written; null where
    it can. Bytes of its files and of the disk that they are on; null where the pool is no file of this machine.
    """

    url: str
    kind: str
    error: str | None = None
    bytes: int | None = None
    disk_free_bytes: int | None = None
    disk_bytes: int | None = None


class EngineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One engine as this worker saw it a second ago at most. `in_flight` and `waiting`: of this server's calls."""

    address: str
    ready: bool
    error: str | None = None
    warning: str | None = None
    in_flight: int = 0
    waiting: int = 0


class ModelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One model on the gateway. `tokens`: the mode in force, and `reason` why. `keyed`: whether a key is sent."""

    name: str
    driver: str
    tokens: str
    reason: str | None = None
    ready: bool = False
    keyed: bool = False
    tokenizer: str | None = None
    channel: str | None = None
    concurrency: int | None = None
    queue: int = 0
    retries: int = 0
    engines: list[EngineStatus] = []


class ServerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """This server. `background`: what failed lately beside the calls; `rewards`: how its evaluators are doing, null
    where it runs none. `idle_seconds`: after which a silent trajectory is closed. `labels`: see /api/v1/label-schemes.
    """

    version: str
    keys_required: bool
    workers: int
    gateway_url: str | None
    idle_seconds: float
    pool: PoolStatus
    models: list[ModelStatus]
    background: list[dict[str, Any]]
    rewards: dict[str, Any] | None = None


class LabelSchemes(msgspec.Struct, frozen=True):
    """The labels that reviewers are offered, as the server's configuration has them."""

    items: list[LabelScheme]


@get(f"{API}/server")
async def get_server(state: State) -> ServerStatus:
    """What this server is and how it is doing, without secrets. Not for keys that are bound to a channel."""
    grant = CALLER.get()
    check_granted(grant)
    if grant.bound:
        raise whole(grant, "the whole server")
    settings: ServeSettings = state.settings
    gateway: Gateway | None = state.gateway
    models, background = [], []
    if gateway is not None:
        _, seen = await gateway.conditions.get()
        by_name = {each["model"]: each for each in seen}
        models = [_model(each, by_name.get(each.name, {})) for each in settings.models]
        background = list(gateway.background.failures)
    rewards = None if state.rewards is None else await asyncio.to_thread(state.rewards.look)
    return ServerStatus(
        version=agentworld.__version__,
        keys_required=settings.keys_required,
        workers=settings.workers,
        gateway_url=None if settings.gateway_url is None else without_secrets(settings.gateway_url),
        idle_seconds=settings.idle_seconds,
        pool=await _pool(state),
        models=models,
        background=background,
        rewards=rewards,
    )


@get(f"{API}/label-schemes", sync_to_thread=False)
def label_schemes(state: State) -> LabelSchemes:
    """The labels that reviewers are offered."""
    settings: ServeSettings = state.settings
    return LabelSchemes(list(settings.labels))


async def _pool(state: State) -> PoolStatus:
    error: str | None = None
    try:
        await state.probe.check()
    except AgentWorldError as fault:
        error = fault.one_line()
    url: str = state.pool.url
    if is_postgres(url):
        return PoolStatus(url=shown_url(url), kind="postgresql", error=error)
    if not url.startswith("sqlite:"):
        return PoolStatus(url=shown_url(url), kind="memory", error=error)
    return await asyncio.to_thread(_file, url, error)


def _file(url: str, error: str | None) -> PoolStatus:
    path = sqlite_path(url.partition("?")[0])
    files = [path, *(Path(f"{path}{end}") for end in ("-wal", "-shm"))]
    disk = shutil.disk_usage(path.parent)
    return PoolStatus(
        url=shown_url(url),
        kind="sqlite",
        error=error,
        bytes=sum(file.stat().st_size for file in files if file.exists()),
        disk_free_bytes=disk.free,
        disk_bytes=disk.total,
    )


def _model(settings: ModelSettings, seen: dict[str, Any]) -> ModelStatus:
    engines = [
        EngineStatus(
            address=without_secrets(each["engine"]),
            ready=each["ready"],
            error=_told(each.get("error"), each["engine"]),
            warning=_told(each.get("warning"), each["engine"]),
            in_flight=each.get("in_flight", 0),
            waiting=each.get("waiting", 0),
        )
        for each in seen.get("engines", [])
    ]
    return ModelStatus(
        name=settings.name,
        driver=settings.driver,
        tokens=seen.get("tokens", settings.tokens),
        reason=seen.get("reason"),
        ready=bool(seen.get("ready")),
        keyed=settings.api_key is not None,
        tokenizer=settings.tokenizer,
        channel=settings.channel,
        concurrency=settings.concurrency,
        queue=settings.queue,
        retries=settings.retries,
        engines=engines,
    )


def without_secrets(address: str) -> str:
    """An address of HTTP without user, password, query and fragment."""
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def _told(text: str | None, address: str) -> str | None:
    return None if text is None else text.replace(address, without_secrets(address))


ROUTES = [get_server, label_schemes]
