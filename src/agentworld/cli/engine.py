"""`agentworld engine`: a small inference server for machines without a GPU."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from agentworld.api.processes import die_with_parent
from agentworld.cli.serve import reserve_port
from agentworld.errors import ConfigError

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def engine(
    model: Annotated[str, typer.Option(help="pocket, smollm2, or a directory with safetensors and tokenizer.json.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 0,
    weights: Annotated[Path | None, typer.Option(help="Safetensors that replace the model's weights.")] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads; by default 1 for a small model, else as torch decides.")
    ] = None,
    max_batch: Annotated[int, typer.Option(min=1, help="Most sequences computed at once.")] = 64,
    max_model_len: Annotated[int | None, typer.Option(min=1, help="Shorter context than the model's.")] = None,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    device: Annotated[str | None, typer.Option(help="cpu or cuda; cuda where there is one.")] = None,
    logprobs_mode: Annotated[
        str, typer.Option(help="Default space of log-probabilities: raw_logprobs or processed_logprobs.")
    ] = "processed_logprobs",
    log_tokens: Annotated[Path | None, typer.Option(help="Append every request's ids here, as JSON lines.")] = None,
    name: Annotated[str | None, typer.Option(help="Model name to serve under.")] = None,
    version: Annotated[int, typer.Option(help="Policy version of the weights at the start.")] = 0,
    run: Annotated[str | None, typer.Option(help="Policy run of the weights at the start.")] = None,
    die_with_parent: Annotated[bool, typer.Option("--die-with-parent", help="Exit when the parent does.")] = False,
) -> None:
    """Serve a model over vLLM's HTTP routes. Prints its URL on one line when ready; all else goes to stderr."""
    if die_with_parent:
        follow_parent()
    if port:
        reserve_port(host, port)  # Before a model is loaded for nothing.
    from agentworld.engines.builtin.server import EngineSettings, run_engine

    if model == "smollm2":
        announce_conversion()

    settings = EngineSettings(
        model=model,
        weights=weights,
        name=name,
        host=host,
        port=port,
        threads=threads,
        max_batch=max_batch,
        max_model_len=max_model_len,
        dtype=dtype,
        device=device,
        logprobs_mode=logprobs_mode,
        log_tokens=log_tokens,
        version=version,
        run=run,
    )
    asyncio.run(run_engine(settings, lambda url: print(url, flush=True)))


def announce_conversion() -> None:
    """Say on stderr that the first start takes a while."""
    from agentworld.engines.builtin.models import smollm2_is_converted

    if not smollm2_is_converted():
        typer.echo("agentworld: converting smollm2 once, which takes about a minute", err=True)


def follow_parent() -> None:
    """Ask the kernel to end this process when its parent ends (Linux).

    To the kernel, the parent is the thread that started the process: start the engine from one that stays.
    """
    if not sys.platform.startswith("linux"):
        raise ConfigError("--die-with-parent needs Linux", path="--die-with-parent")
    die_with_parent(os.getppid(), signal.SIGTERM)
