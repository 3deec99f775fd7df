"""Data pools: one protocol, stores in memory, on SQLite and on PostgreSQL.

`open_store(url)` is the one way in; gateway, trainers and API see the protocol only.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from agentworld.errors import ConfigError
from agentworld.pool.consumer import LeasedBatch, PoolConsumer
from agentworld.pool.media.address import split_media
from agentworld.pool.protocol import AppendResult, DeadLetter, GatewayState, Page, Pool, PoolStats

if TYPE_CHECKING:
    from agentworld.pool.sql.store import SqlPool
from agentworld.pool.urls import is_postgres, shown_url, sqlite_path

__all__ = [
    "AppendResult",
    "DeadLetter",
    "GatewayState",
    "LeasedBatch",
    "Page",
    "Pool",
    "PoolConsumer",
    "PoolStats",
    "open_store",
    "shown_url",
]


def open_store(url: str) -> Pool:
    """The pool at `url`, created where it is not there.

    `sqlite:///relative.db`, `sqlite:////absolute.db` (several processes may share the file, on a local disk),
    `postgresql://user:password@host:port/database` (many machines) or `memory://` (this process alone). With
    `?media=FOLDER`, a URL that fsspec takes, media lie there and not in the pool. ConfigError where the scheme is
    unknown or the folder is missing.
    """
    url, folder = split_media(url)
    if url == "memory://":
        from agentworld.pool.memory import MemoryPool

        if folder is not None:
            raise ConfigError("memory:// keeps media in memory", path="pool", hint="Leave ?media= out")
        return MemoryPool()
    if folder is None:
        return _open(url)
    from agentworld.pool.media.folder import MediaFolder

    media = MediaFolder(folder)
    store = _open(url)
    store.media = media
    return store


def _open(url: str) -> SqlPool:
    if is_postgres(url):
        return _open_postgres(url)
    if not url.startswith("sqlite:"):
        known = "sqlite:///relative.db, sqlite:////absolute.db, postgresql://... or memory://"
        over_http = url.startswith(("http://", "https://"))
        hint = "This is a server, not a pool: agentworld.connect(URL) in Python" if over_http else f"Use {known}"
        raise ConfigError(f"no pool at {shown_url(url)!r}", path="pool", hint=hint)
    path = sqlite_path(url)
    if not path.parent.is_dir():
        raise ConfigError(f"the folder {path.parent} does not exist", path="pool", hint="Create it, or name another")
    from agentworld.pool.sqlite import SqlitePool

    return SqlitePool(path)


def _open_postgres(url: str) -> SqlPool:
    if importlib.util.find_spec("psycopg") is None:
        raise ConfigError(
            "pools on PostgreSQL need its driver", path="pool", hint='Install it: pip install "agentworld[postgres]"'
        )
    from agentworld.pool.postgres import PostgresPool

    return PostgresPool(url)
