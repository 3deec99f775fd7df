"""Who is at the keyboard: the name under which decisions and reviews are kept."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from agentworld.cli.usage import CommandLineError

ByOption = Annotated[
    str | None, typer.Option("--by", help="Who says so. [default: the name of the user of the system]")
]


def name_of(by: str | None) -> str:
    """The name that is given, or that of the system's user; CommandLineError where there is neither."""
    if by is not None:
        if not by.strip():
            raise CommandLineError("the name is empty", path="--by", hint="Say who you are")
        return by
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        raise CommandLineError(
            "the system has no name for this user", path="--by", hint="Say who you are with --by NAME"
        ) from None
