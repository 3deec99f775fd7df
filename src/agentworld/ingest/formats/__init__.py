"""The formats that are read, one module for each family, and those of the entry point `agentworld.formats`."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

from agentworld.errors import InvalidRequestError
from agentworld.extensions import load_extensions
from agentworld.ingest.format import Format

ENTRY_POINTS = "agentworld.formats"
# Where several formats claim a file the first of these reads it: the more specific come first. A module has `FORMAT`,
# or `FORMATS` where it reads several.
MODULES: tuple[str, ...] = (
    "inspect_ai",  # its archives have members that others would claim
    "atif",
    "openai_finetune",
    "claude_code",
    "codex",
    "openhands",
    "otlp",
    "nemo_gym",
    "tau2",
    "tau_bench",
    "swe_agent",
    "mini_swe_agent",
    "token_ids",
    "langsmith",
    "langfuse",
    "adp",
    "toolbench",
    "sharegpt",  # whatever rows of chat are of no other
)


@cache
def formats() -> dict[str, Format]:
    """All formats by name, in the order in which they are asked: those of other packages first."""
    found: dict[str, Format] = {}
    for format in load_extensions(ENTRY_POINTS, "format"):
        found[format.name] = format
    for name in MODULES:
        module: Any = importlib.import_module(f"{__name__}.{name}")
        for format in getattr(module, "FORMATS", None) or (module.FORMAT,):
            found.setdefault(format.name, format)
    return found


def get_format(name: str) -> Format:
    """InvalidRequestError where there is none of that name."""
    known = formats()
    if name not in known:
        raise InvalidRequestError(
            f"There is no format {name!r}", path="format", hint=f"One of auto, {', '.join(known)}"
        )
    return known[name]
