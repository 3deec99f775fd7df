"""`agentworld serve`: the gateway and the control API on a pool."""

from __future__ import annotations

import contextlib
import functools
import http.client
import ipaddress
import math
import os
import re
import signal
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args
from urllib.parse import urlsplit

import msgspec
import typer

from agentworld.cli.serve_rewards import follower_of, rewards_beside
from agentworld.cli.usage import CommandLineError
from agentworld.config import TOKENIZERS, DriverName, ServeSettings, TokenMode, blamed, convert, read_toml
from agentworld.errors import ConfigError
from agentworld.loopback import host_name

if TYPE_CHECKING:
    from agentworld.http_server.workers import Workers

app = typer.Typer(add_completion=False, rich_markup_mode=None)


def settings_from(
    config: Path | None, options: dict[str, Any], model: dict[str, Any], api_key: str | None
) -> ServeSettings:
    """The settings: the file, overridden by options and environment. `model` describes the one model of the options;
    where the file has a model of that name, its fields are overridden. Of several upstreams each is an engine of it.
    `api_key` is that model's, or the only one's.
    """
    data: dict[str, Any] = read_toml(config) if config else {}
    data.update({name: value for name, value in options.items() if value is not None})
    given = {name: value for name, value in model.items() if value not in (None, [])}
    if "upstream" in given:
        given["upstream"], *given["upstreams"] = given["upstream"]
    for option, known_values in (("driver", get_args(DriverName)), ("tokens", get_args(TokenMode))):
        if option in given and given[option] not in known_values:
            raise CommandLineError(f"--{option} {given[option]!r} is not known", hint=f"Use {', '.join(known_values)}")
    if given:
        models = [dict(each) for each in _tables(data.get("models", []), config)]
        name = given.get("name") or (models[0].get("name") if len(models) == 1 else None)
        if name is None:
            raise CommandLineError(
                f"--{next(iter(given)).replace('_', '-')} needs the model that it is about",
                hint="Add --model NAME, the name that the engine serves",
            )
        known = next((each for each in models if each.get("name") == name), None)
        if known is None:
            known = {"name": name}
            models.append(known)
        known.update(given)
        if api_key:
            known["api_key"] = api_key
        if not known.get("upstream"):
            raise CommandLineError(f"model {name} has no upstream", hint="Add --upstream URL, where its engine answers")
        data["models"] = models
    elif api_key and len(only := _tables(data.get("models", []), config)) == 1:
        data["models"] = [{**only[0], "api_key": api_key}]
    try:
        return checked(convert(data, ServeSettings, str(config) if config else "command line"))
    except CommandLineError:
        raise
    except ConfigError as error:
        typed = given.keys() | {name for name, value in options.items() if value is not None}
        if config is None or not typed.isdisjoint(re.findall(r"\w+", error.path or "")):
            # Of the command line, or of the variables that stand for its options.
            raise CommandLineError(error.message, path=error.path, hint=error.hint) from None
        with blamed(str(config)):
            raise


def _tables(value: Any, config: Path | None) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise ConfigError(f"{config}: models is not a list of tables", hint="Write each model as [[models]]")
    return value


def checked(settings: ServeSettings) -> ServeSettings:
    """The settings, if a server can run with them."""
    if not 0 <= settings.port <= 65_535:
        raise ConfigError(f"port {settings.port} is not from 0 to 65535", path="port")
    if not 1 <= settings.workers <= 256:
        raise ConfigError(f"workers {settings.workers} is not from 1 to 256", path="workers")
    host = "127.0.0.1" if settings.host == "localhost" else settings.host
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise ConfigError(f"{host!r} is not an IP address", path="host", hint="Use 127.0.0.1") from None
    if settings.pool.startswith("memory") and settings.keys_required:
        raise ConfigError(
            f"a pool in memory has no keys, which this server on {host} needs",
            path="pool",
            hint="Use a sqlite:/// or postgresql:// pool, or --host 127.0.0.1 and no required keys",
        )
    for name in settings.allowed_hosts:
        if host_name(f"[{name}]" if ":" in name and not name.startswith("[") else name) is None:
            raise ConfigError(
                f"{name!r} is no name of a host",
                path="allowed_hosts",
                hint="Leave scheme and port out: factory.example",
            )
    if settings.pool.startswith("memory") and settings.workers > 1:
        raise ConfigError("workers do not share a pool in memory", path="workers", hint="Use one, or a sqlite:/// pool")
    if settings.gateway_url is not None and not _is_origin(settings.gateway_url):
        raise ConfigError(
            f"{settings.gateway_url!r} is no address that agents can call",
            path="gateway_url",
            hint="Write it like https://gateway.example",
        )
    for number, model in enumerate(settings.models):
        if model.name in (other.name for other in settings.models[:number]):
            raise ConfigError(f"two models are named {model.name!r}", path="models.name")
        for upstream in model.addresses:
            if not upstream.startswith(("http://", "https://")):
                raise ConfigError(
                    f"{upstream!r} of model {model.name} is not the address of an engine",
                    path="upstream",
                    hint="Begin it with http://",
                )
        if model.tokenizer not in (None, *TOKENIZERS) and not Path(model.tokenizer).expanduser().exists():
            raise ConfigError(
                f"tokenizer {model.tokenizer} of model {model.name} does not exist",
                path="tokenizer",
                hint=f"Give a folder with tokenizer.json, that file, or one of {', '.join(TOKENIZERS)}",
            )
    return msgspec.structs.replace(settings, host=host)


def _is_origin(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def reserve_port(host: str, port: int) -> int:
    """A port that nobody listens on: `port`, or a free one for 0. ConfigError where it is taken.

    Workers bind with SO_REUSEPORT, so without this check two servers would share one port in silence.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {host} port {port}: {error.strerror}",
                path="port",
                hint="Stop the server that answers there, or use --port 0 for a free one",
            ) from None
        chosen: int = probe.getsockname()[1]
        return chosen


def check_pool(settings: ServeSettings) -> None:
    """Open the pool once, so that its faults are told before a worker starts; also makes and migrates it. ConfigError
    where keys are required and nobody could ever make one.
    """
    from agentworld.pool import open_store, shown_url

    pool = open_store(settings.pool)
    try:
        if not settings.keys_required:
            return
        if not any("admin" in key.scopes and key.lives(time.time()) for key in pool.list_keys()):
            raise ConfigError(
                f"refusing to listen on {settings.host} with keys required: the pool has no key with the scope admin",
                path="host",
                hint=f"Make one: agentworld keys create --pool {shown_url(settings.pool)} --scope admin --name admin",
            )
    finally:
        pool.close()


def origin(settings: ServeSettings) -> str:
    """Where the server answers."""
    shown = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{shown}:{settings.port}"


def _reached(host: str) -> str:
    """The address at which a server on this machine that listens on `host` answers."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def announce(settings: ServeSettings, workers: Workers, stopped: threading.Event) -> None:
    """Wait until a worker answers, then say so; from then on workers that end are started again."""
    while not stopped.wait(0.05):
        connection = http.client.HTTPConnection(_reached(settings.host), settings.port, timeout=5)
        with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(connection):
            connection.request("GET", "/healthz")
            if connection.getresponse().status == 200:
                break
    else:
        return
    from agentworld.pool import shown_url

    workers.established = True
    models = ", ".join(f"{model.name} ({model.driver})" for model in settings.models)
    serving = f"models: {models}" if models else "control API only, no models"
    keys = " - API keys required" if settings.keys_required else ""
    print(f"AgentWorld serves {origin(settings)} - {serving} - pool {shown_url(settings.pool)}{keys}", flush=True)


def run(settings: ServeSettings, *, log_level: Any = "info", log_json: bool = False) -> None:
    """Serve until SIGINT or SIGTERM."""
    with contextlib.ExitStack() as stack:
        if settings.workers > 1 and "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            # Workers count requests together in files there; it has to be known before the library is imported.
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="agentworld-metrics-"))
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        _run(settings, log_level, log_json)


def _run(settings: ServeSettings, log_level: Any, log_json: bool) -> None:
    from agentworld.api import logs
    from agentworld.api.worker import WorkerSettings, work
    from agentworld.http_server.workers import Workers

    settings = msgspec.structs.replace(settings, port=reserve_port(settings.host, settings.port))
    check_pool(settings)
    rewards = follower_of(settings)
    logs.configure(log_level, as_json=log_json)
    worker = WorkerSettings(settings, os.getpid(), log_level, log_json, rewards)
    # Workers end themselves when their time of grace is over (agentworld.api.worker); this is for one that cannot.
    workers = Workers(settings.workers, functools.partial(work, worker), math.ceil(settings.grace) + 10)
    stopped = threading.Event()
    announcing = threading.Thread(target=announce, args=(settings, workers, stopped), name="announce", daemon=True)
    try:
        with rewards_beside(settings):
            status = workers.run(announcing.start)
    finally:
        stopped.set()
    if status:
        raise SystemExit(status)


@app.command()
def serve(
    pool: Annotated[
        str | None,
        typer.Option(envvar="AGENTWORLD_POOL", help="Where the data goes. [default: sqlite:///agentworld.db]"),
    ] = None,
    upstream: Annotated[
        list[str] | None,
        typer.Option(
            envvar="AGENTWORLD_UPSTREAM",
            help="Address of the engine, e.g. http://127.0.0.1:8000; again for each further engine of the model.",
        ),
    ] = None,
    driver: Annotated[
        str | None,
        typer.Option(envvar="AGENTWORLD_DRIVER", help=f"Its kind: {', '.join(get_args(DriverName))}. [default: vllm]"),
    ] = None,
    model: Annotated[
        str | None, typer.Option(envvar="AGENTWORLD_MODEL", help="Name of the model as the engine serves it.")
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            envvar="AGENTWORLD_TOKENIZER",
            help=f"For token-in: folder or tokenizer.json of the model, or {', '.join(TOKENIZERS)}.",
        ),
    ] = None,
    tokens: Annotated[
        str | None,
        typer.Option(envvar="AGENTWORLD_TOKENS", help=f"How ids are had: {', '.join(get_args(TokenMode))}."),
    ] = None,
    host: Annotated[
        str | None, typer.Option(envvar="AGENTWORLD_HOST", help="Address to listen on. [default: 127.0.0.1]")
    ] = None,
    port: Annotated[
        int | None, typer.Option(envvar="AGENTWORLD_PORT", help="Port; 0 picks a free one. [default: 8400]")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(envvar="AGENTWORLD_WORKERS", help="Worker processes. [default: 1]")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(envvar="AGENTWORLD_CONFIG", help="TOML file; options and environment override it.")
    ] = None,
    strict_models: Annotated[
        bool | None,
        typer.Option("--strict-models", envvar="AGENTWORLD_STRICT_MODELS", help="Refuse unknown model names."),
    ] = None,
    gateway_url: Annotated[
        str | None,
        typer.Option(envvar="AGENTWORLD_GATEWAY_URL", help="Origin that agents call, where it is not this server."),
    ] = None,
    require_keys: Annotated[
        bool | None,
        typer.Option(
            "--require-keys", envvar="AGENTWORLD_REQUIRE_KEYS", help="Ask for API keys on a loopback address too."
        ),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(envvar="AGENTWORLD_ALLOWED_HOST", help="A further name that the server answers to; repeatable."),
    ] = None,
    rewards: Annotated[
        list[Path] | None,
        typer.Option(
            envvar="AGENTWORLD_REWARDS",
            help="File of evaluators that a process beside it runs on the pool; repeatable, as if they were one.",
        ),
    ] = None,
    log_level: Annotated[
        str, typer.Option(envvar="AGENTWORLD_LOG_LEVEL", help="debug, info, warning or error.")
    ] = "info",
    die_with_parent: Annotated[
        bool, typer.Option("--die-with-parent", help="Stop when the process that started this one ends.")
    ] = False,
) -> None:
    """Serve the gateway (LLM routes) and the control API on a pool; without a model, the control API alone.

    The engine's API key comes from AGENTWORLD_UPSTREAM_API_KEY or from the file, so that it does not show in `ps`.

    No engine yet? `agentworld engine --model smollm2` (or pocket, which is tiny) serves a model on this machine and
    prints its URL, for --upstream URL --driver builtin --model smollm2.
    """
    if die_with_parent:
        from agentworld.api.processes import die_with_parent as follow

        follow(os.getppid(), signal.SIGTERM)
    if log_level not in ("debug", "info", "warning", "error"):
        raise CommandLineError(f"{log_level!r} is no log level", hint="Use debug, info, warning or error")
    options = {
        "pool": pool,
        "host": host,
        "port": port,
        "workers": workers,
        "strict_models": strict_models,
        "gateway_url": gateway_url,
        "require_keys": require_keys,
        "allowed_hosts": allowed_host or None,
        "rewards": [str(each) for each in rewards or ()] or None,
    }
    described = {"name": model, "upstream": upstream, "driver": driver, "tokens": tokens, "tokenizer": tokenizer}
    settings = settings_from(config, options, described, os.environ.get("AGENTWORLD_UPSTREAM_API_KEY"))
    run(settings, log_level=log_level, log_json=not sys.stderr.isatty())
