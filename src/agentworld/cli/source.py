"""Where a command reads and writes: a pool's file, or a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentworld.errors import ConfigError, NotFoundError

if TYPE_CHECKING:
    from agentworld.client.factory import Factory
    from agentworld.factory import EmbeddedPool

DEFAULT_POOL = "sqlite:///agentworld.db"
DEFAULT_URL = "http://127.0.0.1:8400"

PoolOption = Annotated[
    str | None, typer.Option("--pool", envvar="AGENTWORLD_POOL", help="The pool, e.g. sqlite:///agentworld.db.")
]
UrlOption = Annotated[
    str | None, typer.Option("--url", envvar="AGENTWORLD_URL", help="A server instead, e.g. http://127.0.0.1:8400.")
]


def pool_file(url: str) -> Path | None:
    """The file of an SQLite pool; None for other pools."""
    return Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else None


def open_existing(url: str) -> EmbeddedPool:
    """The pool at `url`; NotFoundError where its file is missing, as reading would otherwise make an empty one."""
    from agentworld.factory import open_pool

    path = pool_file(url)
    if path is not None and not path.exists():
        raise NotFoundError(f"There is no pool at {path}", hint="Give another --pool, or --url for a running server")
    return open_pool(url)


@contextmanager
def source(pool: str | None, url: str | None) -> Iterator[EmbeddedPool | Factory]:
    """The pool or the server that the options name.

    With neither, the pool in this folder where there is one, otherwise the server at its default address.
    """
    from agentworld.client.factory import Factory

    if pool and url:
        raise ConfigError("--pool and --url exclude each other", hint="Give the one that you mean")
    if pool is None and url is None:
        path = pool_file(DEFAULT_POOL)
        pool, url = (DEFAULT_POOL, None) if path is not None and path.exists() else (None, DEFAULT_URL)
    opened = open_existing(pool) if pool else Factory(url or DEFAULT_URL)
    try:
        yield opened
    finally:
        opened.close()
