"""`agentworld doctor`: what works here, what does not, and what to do about it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from agentworld.cli import output
from agentworld.cli.engine_checks import check_models
from agentworld.cli.findings import Finding, bad
from agentworld.cli.serve import reserve_port, settings_from
from agentworld.cli.source import pool_file, schema_at, stored_schema
from agentworld.errors import AgentWorldError, ConfigError, ForbiddenError, UnauthorizedError

if TYPE_CHECKING:
    from agentworld.config import ServeSettings

app = typer.Typer(add_completion=False, rich_markup_mode=None)

# What each extra needs, by one module of it.
EXTRAS = {
    "engine": "torch",
    "train": "matplotlib",
    "agents": "openai",
    "tasks": "reasoning_gym",
    "postgres": "psycopg",
    "parquet": "pyarrow",
    "media": "fsspec",
    "ray": "ray",
}
CLIENTS = ("claude", "codex", "opencode")
LOW_DISK = 1 << 30  # bytes


@app.command()
def doctor(
    pool: Annotated[str | None, typer.Option(envvar="AGENTWORLD_POOL", help="The pool to check.")] = None,
    upstream: Annotated[
        list[str] | None,
        typer.Option(envvar="AGENTWORLD_UPSTREAM", help="Address of the engine; again for each further one."),
    ] = None,
    driver: Annotated[str | None, typer.Option(envvar="AGENTWORLD_DRIVER", help="Kind of engine.")] = None,
    model: Annotated[str | None, typer.Option(envvar="AGENTWORLD_MODEL", help="Model that the engine serves.")] = None,
    tokenizer: Annotated[
        str | None, typer.Option(envvar="AGENTWORLD_TOKENIZER", help="Folder, tokenizer.json or name of the tokenizer.")
    ] = None,
    tokens: Annotated[str | None, typer.Option(envvar="AGENTWORLD_TOKENS", help="How ids are to be had.")] = None,
    config: Annotated[Path | None, typer.Option(envvar="AGENTWORLD_CONFIG", help="File of `agentworld serve`.")] = None,
    port: Annotated[int | None, typer.Option(envvar="AGENTWORLD_PORT", help="Port of the server.")] = None,
) -> int:
    """Check Python, extras, pool, port and engines as `agentworld serve` with the same options would find them.

    Ends with code 1 where something needs mending. To each engine it sends two calls of one token.
    """
    from agentworld.api import logs

    logs.configure("error", as_json=False)
    described = {"name": model, "upstream": upstream, "driver": driver, "tokens": tokens, "tokenizer": tokenizer}
    findings: list[Finding] = [*check_python()]
    try:
        key = os.environ.get("AGENTWORLD_UPSTREAM_API_KEY")
        settings = settings_from(config, {"pool": pool, "port": port}, described, key)
    except AgentWorldError as error:
        findings.append(bad("settings", error))
    else:
        findings += [*check_pool(settings.pool), *check_port(settings), *check_models(settings)]
    findings += check_clients()
    marks = {"ok": "ok", "info": "-", "bad": "FIX"}
    output.table(("", "what", "found", "to do"), [(marks[each.state], *each[1:]) for each in findings])
    wrong = sum(each.state == "bad" for each in findings)
    typer.echo("Nothing needs mending." if not wrong else f"{wrong} of {len(findings)} need mending.")
    return 1 if wrong else 0


def check_python() -> Iterator[Finding]:
    """The interpreter and the extras."""
    yield Finding("ok", "python", sys.version.split()[0])
    for extra, module in EXTRAS.items():
        if importlib.util.find_spec(module) is not None:
            yield Finding("ok", f"extra {extra}", "installed")
        else:
            yield Finding(
                "info", f"extra {extra}", "not installed", f'if you need it: pip install "agentworld[{extra}]"'
            )


def check_pool(url: str) -> Iterator[Finding]:
    """Whether the pool opens, and whether it can grow. A pool that is not there is not made, an old one not changed."""
    from agentworld.pool import open_store, shown_url
    from agentworld.pool.schema import SCHEMA_VERSION

    path = pool_file(url)
    if path is not None:
        folder = path.parent
        if not folder.is_dir():
            yield Finding("bad", "pool", f"the folder {folder} does not exist", f"mkdir -p {folder}")
            return
        if not os.access(folder, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
            yield Finding("bad", "pool", f"{path} cannot be written", "change its owner or mode, or choose another")
            return
        free = shutil.disk_usage(folder).free
        if free < LOW_DISK:
            yield Finding("bad", "disk", f"{free // (1 << 20)} MiB free beside the pool", "make room")
        if not path.exists():
            yield Finding("ok", "pool", f"{path} will be made by `agentworld serve`")
            return
        schema = stored_schema(path) if path.is_file() else SCHEMA_VERSION
        if schema is None:
            yield Finding("ok", "pool", f"{path} is empty; `agentworld serve` makes a pool of it")
            return
        if schema < SCHEMA_VERSION:
            yield _old(str(path), schema, url)
            return
    try:
        if path is None and (finding := _unopened(url)) is not None:
            yield finding
            return
        store = open_store(url)
        try:
            counters = store.stats()
        finally:
            store.close()
    except AgentWorldError as error:
        yield bad("pool", error)
        return
    held = sum(counters.trajectories.values())
    yield Finding("ok", "pool", f"{shown_url(url)} holds {held} trajectories, {counters.steps} steps")


def _unopened(url: str) -> Finding | None:
    """What is to be said of a pool on a server that is not there or old, which opening would make or change."""
    from agentworld.pool import shown_url
    from agentworld.pool.schema import SCHEMA_VERSION

    schema, place = schema_at(url)
    if schema is None:
        return Finding("ok", "pool", f"a pool will be made in {place} by `agentworld serve`")
    if schema < SCHEMA_VERSION:
        return _old(place, schema, shown_url(url))
    return None


def _old(place: str, schema: str, url: str) -> Finding:
    return Finding(
        "info",
        "pool",
        f"{place} has the schema {schema} of an older version",
        f"`agentworld serve` brings it up to date, or: agentworld pool migrate --pool {url}",
    )


def check_port(settings: ServeSettings) -> Iterator[Finding]:
    """Whether the port is free, or a server of ours has it."""
    from agentworld.client.factory import Factory

    try:
        reserve_port(settings.host, settings.port)
    except ConfigError as taken:
        try:
            with Factory(f"http://{settings.host}:{settings.port}", timeout=5.0) as factory:
                factory.stats()
        except (UnauthorizedError, ForbiddenError):  # It asks for keys; that it is there it tells anybody.
            if _lives(f"http://{settings.host}:{settings.port}"):
                yield Finding("ok", "port", f"a server answers on {settings.port}, and asks for keys")
            else:
                yield bad("port", taken)
        except AgentWorldError:
            yield bad("port", taken)
        else:
            yield Finding("ok", "port", f"a server answers on {settings.port}")
    else:
        yield Finding("ok", "port", f"{settings.port} is free")


def _lives(url: str) -> bool:
    """Whether /healthz says so, as that of our servers does without a key."""
    from agentworld.client.connection import Connection

    connection = Connection(url, timeout=5.0)
    try:
        reply = connection.request("GET", "/healthz")
        return reply.status == 200 and msgspec.json.decode(reply.body, type=dict[str, str]) == {"status": "ok"}
    except (AgentWorldError, msgspec.DecodeError):
        return False
    finally:
        connection.close()


def check_clients() -> Iterator[Finding]:
    """Known agents on this machine; none is needed."""
    found = [name for name in CLIENTS if shutil.which(name)]
    yield Finding("ok" if found else "info", "agents", ", ".join(found) or f"none of {', '.join(CLIENTS)} on the PATH")
