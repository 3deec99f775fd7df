"""`agentworld doctor`: what works here, what does not, and what to do about it."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
import typer

from agentworld.cli import output
from agentworld.cli.serve import reserve_port, settings_from
from agentworld.cli.source import pool_file
from agentworld.errors import AgentWorldError, ConfigError

if TYPE_CHECKING:
    from agentworld.config import ModelSettings, ServeSettings
    from agentworld.gateway.models import ServedModel

app = typer.Typer(add_completion=False, rich_markup_mode=None)

# What each extra needs, by one module of it.
EXTRAS = {"engine": "torch", "train": "matplotlib", "tasks": "reasoning_gym", "postgres": "psycopg"}
CLIENTS = ("claude", "codex", "opencode")
LOW_DISK = 1 << 30  # bytes
PROBE_TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look at a place.",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
    },
}


class Finding(NamedTuple):
    """One line of the report. `state`: ok, info (nothing is wrong, something is absent) or bad."""

    state: str
    subject: str
    result: str
    fix: str = ""


@app.command()
def doctor(
    pool: Annotated[str | None, typer.Option(envvar="AGENTWORLD_POOL", help="The pool to check.")] = None,
    upstream: Annotated[str | None, typer.Option(envvar="AGENTWORLD_UPSTREAM", help="Address of the engine.")] = None,
    driver: Annotated[str | None, typer.Option(envvar="AGENTWORLD_DRIVER", help="Kind of engine.")] = None,
    model: Annotated[str | None, typer.Option(envvar="AGENTWORLD_MODEL", help="Model that the engine serves.")] = None,
    tokenizer: Annotated[
        str | None, typer.Option(envvar="AGENTWORLD_TOKENIZER", help="Folder or tokenizer.json of the model.")
    ] = None,
    tokens: Annotated[str | None, typer.Option(envvar="AGENTWORLD_TOKENS", help="How ids are to be had.")] = None,
    config: Annotated[Path | None, typer.Option(envvar="AGENTWORLD_CONFIG", help="File of `agentworld serve`.")] = None,
    port: Annotated[int | None, typer.Option(envvar="AGENTWORLD_PORT", help="Port of the server.")] = None,
) -> int:
    """Check Python, extras, pool, port and engines as `agentworld serve` with the same options would find them.

    Ends with code 1 where something needs mending. To the engine it sends two calls of a few tokens.
    """
    from agentworld.api import logs

    logs.configure("error", as_json=False)
    described = {"name": model, "upstream": upstream, "driver": driver, "tokens": tokens, "tokenizer": tokenizer}
    findings: list[Finding] = [*check_python()]
    try:
        key = os.environ.get("AGENTWORLD_UPSTREAM_API_KEY")
        settings = settings_from(config, {"pool": pool, "port": port}, described, key)
    except AgentWorldError as error:
        findings.append(_bad("settings", error))
    else:
        findings += [*check_pool(settings.pool), *check_port(settings), *check_models(settings)]
    findings += check_clients()
    marks = {"ok": "ok", "info": "-", "bad": "FIX"}
    output.table(("", "what", "found", "to do"), [(marks[each.state], *each[1:]) for each in findings])
    wrong = sum(each.state == "bad" for each in findings)
    typer.echo("Nothing needs mending." if not wrong else f"{wrong} of {len(findings)} need mending.")
    return 1 if wrong else 0


def _bad(subject: str, error: AgentWorldError) -> Finding:
    return Finding("bad", subject, error.message, error.hint or "")


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
    """Whether the pool opens, and whether it can grow. A pool that is not there is not made."""
    from agentworld.pool import open_store

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
    try:
        store = open_store(url)
        try:
            counters = store.stats()
        finally:
            store.close()
    except AgentWorldError as error:
        yield _bad("pool", error)
        return
    held = sum(counters.trajectories.values())
    yield Finding("ok", "pool", f"{url} holds {held} trajectories, {counters.steps} steps")


def check_port(settings: ServeSettings) -> Iterator[Finding]:
    """Whether the port is free, or a server of ours has it."""
    from agentworld.client.factory import Factory

    try:
        reserve_port(settings.host, settings.port)
    except ConfigError as taken:
        try:
            with Factory(f"http://{settings.host}:{settings.port}", timeout=5.0) as factory:
                factory.stats()
        except AgentWorldError:
            yield _bad("port", taken)
        else:
            yield Finding("ok", "port", f"a server answers on {settings.port}")
    else:
        yield Finding("ok", "port", f"{settings.port} is free")


def check_clients() -> Iterator[Finding]:
    """Known agents on this machine; none is needed."""
    found = [name for name in CLIENTS if shutil.which(name)]
    yield Finding("ok" if found else "info", "agents", ", ".join(found) or f"none of {', '.join(CLIENTS)} on the PATH")


def check_models(settings: ServeSettings) -> Iterator[Finding]:
    """Each model: whether its engine answers and serves it, and where the ids of its steps come from."""
    if not settings.models:
        yield Finding("info", "engine", "no model is named", "add --upstream URL --model NAME to check an engine")
    for model in settings.models:
        yield from asyncio.run(_check_model(model))


async def _check_model(model: ModelSettings) -> list[Finding]:
    from agentworld.engines.base import open_engine
    from agentworld.gateway.models import ServedModel

    engine = None
    try:
        engine = open_engine(model, 60.0)
        served = ServedModel(model, engine)
        names = [card.name for card in await engine.models()]
        if names and model.name not in names:
            return [
                Finding(
                    "bad", f"model {model.name}", f"the engine serves {', '.join(names[:5])}", f"--model {names[0]}"
                )
            ]
        findings = [Finding("ok", f"model {model.name}", f"{model.driver} at {model.upstream}")]
        return [*findings, *await _probe(model, served)]
    except AgentWorldError as error:
        return [_bad(f"model {model.name}", error)]
    finally:
        if engine is not None:
            await engine.close()


async def _probe(model: ModelSettings, served: ServedModel) -> list[Finding]:
    """Two short calls: whether ids and log-probabilities come back, and whether tools are understood."""
    from agentworld.dialects.exchange import Delta, Request
    from agentworld.engines.base import explicit
    from agentworld.records import Message, Sampling

    asked = Sampling(max_tokens=1, temperature=1.0)
    sampling = explicit(asked) if served.mode != "none" else asked
    request = Request(
        dialect="chat", model=model.name, messages=(Message(role="user", content="Hi"),), sampling=sampling
    )
    pieces: list[Delta] = []
    if served.token_in is not None:
        prompt = served.token_in.tokenizer.encode("Hi")
        async with served.engine.generate(prompt, request, sampling) as deltas:
            pieces = [piece async for piece in deltas]
    else:
        async with served.engine.chat(request) as deltas:
            pieces = [piece async for piece in deltas]
    ids = any(piece.ids for piece in pieces)
    logprobs = any(piece.logprobs for piece in pieces)
    findings = [_tokens_finding(model, served, ids, logprobs)]
    if served.token_in is None:
        tools = msgspec.structs.replace(request, tools=(PROBE_TOOL,))
        try:
            async with served.engine.chat(tools) as deltas:
                async for _ in deltas:
                    pass
            findings.append(Finding("ok", "tool calls", "the engine takes tools"))
        except AgentWorldError as error:
            fix = "start vLLM with --enable-auto-tool-choice --tool-call-parser NAME"
            findings.append(Finding("bad", "tool calls", error.message, fix))
    return findings


def _tokens_finding(model: ModelSettings, served: ServedModel, ids: bool, logprobs: bool) -> Finding:
    if served.mode == "none":
        fix = "for training, serve the model by an engine that gives ids, or set --tokens and --tokenizer"
        return Finding("info", "tokens", f"text only: {served.reason}", fix)
    if ids and logprobs:
        return Finding("ok", "tokens", f"{served.mode}: {served.reason}; ids and log-probabilities come back")
    missing = " and ".join(name for name, there in (("ids", ids), ("log-probabilities", logprobs)) if not there)
    if served.mode == "token-in":
        fix = "an engine of this driver should return them; check its version"
    else:
        fix = "use an engine that returns them (vLLM 0.10.2 or newer), or --tokens token-in --tokenizer PATH"
    return Finding("bad", "tokens", f"{served.mode}, but no {missing} came back from {model.upstream}", fix)
