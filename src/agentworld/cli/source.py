"""Where a command reads and writes: a pool's file, or a server."""

from __future__ import annotations

import importlib.util
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentworld.cli.usage import CommandLineError
from agentworld.errors import NotFoundError, PoolError

if TYPE_CHECKING:
    from agentworld.client.factory import Factory
    from agentworld.factory import EmbeddedPool

DEFAULT_POOL = "sqlite:///agentworld.db"
DEFAULT_URL = "http://127.0.0.1:8400"


def _beside(other: str, names: str) -> Callable[[typer.Context, typer.CallbackParam, str | None], str | None]:
    """The callback of an option that excludes the `other`: what was typed wins over its variable. `names`: of both
    variables.

    What was typed is processed before what variables say, so it stands in the context by then.
    """

    def settle(context: typer.Context, parameter: typer.CallbackParam, value: str | None) -> str | None:
        if value is None or context.params.get(other) is None or not _is_ambient(context, parameter.name):
            return value
        if _is_ambient(context, other):
            raise CommandLineError(
                f"{names} are both set, and exclude each other", hint="Give --pool or --url, or unset one of them"
            )
        return None

    return settle


def _is_ambient(context: typer.Context, name: str | None) -> bool:
    source = context.get_parameter_source(name or "")
    return source is not None and source.name == "ENVIRONMENT"


_VARIABLES = "AGENTWORLD_POOL and AGENTWORLD_URL"
PoolOption = Annotated[
    str | None,
    typer.Option(
        "--pool",
        envvar="AGENTWORLD_POOL",
        help="The pool, e.g. sqlite:///agentworld.db.",
        callback=_beside("url", _VARIABLES),
    ),
]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="AGENTWORLD_URL",
        help="A server instead, e.g. http://127.0.0.1:8400.",
        callback=_beside("pool", _VARIABLES),
    ),
]


def pool_file(url: str) -> Path | None:
    """The file of an SQLite pool; None for other pools."""
    from agentworld.pool.media.address import split_media
    from agentworld.pool.urls import sqlite_path

    return sqlite_path(split_media(url)[0]) if url.startswith("sqlite:") else None


def stored_schema(path: Path) -> str | None:
    """The schema version of a pool's file, without a write to it or beside it: None where no pool is in it yet.

    Files in use, and those that only opening can judge (no database, another program's), count as up to date.
    """
    from agentworld.pool.schema import SCHEMA_VERSION

    if path.stat().st_size == 0:
        return None
    log = path.with_name(path.name + "-wal")
    if log.exists() and log.stat().st_size:
        return SCHEMA_VERSION
    try:
        # `immutable` leaves out locks and the files of the write-ahead log, which is empty here.
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)) as connection:
            names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if not names:
                return None
            return str(connection.execute("SELECT version_num FROM alembic_version").fetchone()[0])
    except (sqlite3.Error, TypeError):
        return SCHEMA_VERSION


def schema_at(url: str) -> tuple[str | None, str]:
    """The schema version of the pool at a URL, found without a change to it, and the place as it may be printed.

    None where there is no pool yet; NotFoundError where a pool's file is missing. Pools in memory, and files that only
    opening can judge, count as up to date.
    """
    from agentworld.pool.schema import SCHEMA_VERSION
    from agentworld.pool.urls import is_postgres, shown_url

    path = pool_file(url)
    if path is not None and not path.is_dir():
        if not path.exists():
            raise NotFoundError(f"There is no pool at {path}", hint="Name the one that is meant with --pool")
        return stored_schema(path), str(path)
    if is_postgres(url) and importlib.util.find_spec("psycopg") is not None:
        from agentworld.pool.media.address import split_media
        from agentworld.pool.postgres.database import existing_version

        return existing_version(split_media(url)[0]), shown_url(url)
    return SCHEMA_VERSION, shown_url(url)


def open_existing(url: str, *, migrate: bool = False) -> EmbeddedPool:
    """The pool at `url`, for commands that must not make or, unless `migrate`, change one: NotFoundError where its file
    is missing or no pool is there, PoolError where its schema is an older one.
    """
    from agentworld.factory import open_pool
    from agentworld.pool import shown_url
    from agentworld.pool.schema import SCHEMA_VERSION

    _check_lasting(url)
    schema, place = schema_at(url)
    if schema is None:
        raise NotFoundError(
            f"{place} is empty, no pool", hint="`agentworld serve --pool`, or agentworld.open_pool in Python, makes one"
        )
    if schema < SCHEMA_VERSION and not migrate:
        raise PoolError(
            f"{place} has the schema {schema} of an older version, this one needs {SCHEMA_VERSION}",
            hint=f"Bring it up to date with `agentworld pool migrate --pool {shown_url(url)}`",
        )
    return open_pool(url)


def open_or_make(url: str) -> EmbeddedPool:
    """As `open_existing`, but a pool that is not there is made."""
    from agentworld.factory import open_pool

    _check_lasting(url)
    try:
        there = schema_at(url)[0] is not None
    except NotFoundError:
        there = False
    return open_existing(url) if there else open_pool(url)


def _check_lasting(url: str) -> None:
    """CommandLineError for a pool that would begin and end with the command."""
    if url.startswith("memory:"):
        raise CommandLineError(
            "memory:// is a new and empty pool of this command alone",
            path="--pool",
            hint="Name a pool in a file or on a PostgreSQL server; one in a server's memory answers to its URL only",
        )


def check_given(option: str, value: str | None) -> None:
    """ConfigError for an empty value, which a variable that is not set leaves behind."""
    if value is not None and not value.strip():
        raise CommandLineError(f"{option} is empty", hint="Give a value, or leave the option and its variable out")


@contextmanager
def source(pool: str | None, url: str | None, *, make: bool = False) -> Iterator[EmbeddedPool | Factory]:
    """The pool or the server that the options name. `make`: a pool that is named and not there is made.

    With neither, the pool in this folder where there is one, otherwise the server at its default address.
    """
    from agentworld.client.factory import Factory

    check_given("--pool", pool)
    check_given("--url", url)
    if pool and url:
        raise CommandLineError("--pool and --url exclude each other", hint="Give the one that you mean")
    if pool is None and url is None:
        path = pool_file(DEFAULT_POOL)
        pool, url = (DEFAULT_POOL, None) if path is not None and path.exists() else (None, DEFAULT_URL)
    opened: EmbeddedPool | Factory
    if pool:
        opened = open_or_make(pool) if make else open_existing(pool)
    else:
        opened = Factory(url or DEFAULT_URL)
    try:
        yield opened
    finally:
        opened.close()
