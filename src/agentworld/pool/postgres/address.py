"""Reading the URL of a pool on PostgreSQL.

`postgresql://user:secret@host:5432/database?option=value`, as SQLAlchemy and libpq read it. What libpq knows
(`sslmode`, `host` again for several servers, `target_session_attrs`, ...) goes to it; two options are ours: `schema`
and `prepare_threshold`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo
from sqlalchemy import URL, make_url
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.exc import ArgumentError

from agentworld.errors import ConfigError
from agentworld.pool.postgres.errors import first_line

PREPARE_AFTER = 3  # runs of a statement on one connection, after which the server keeps its plan
_SECRETS = ("password", "sslpassword")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
# What libpq leaves at the system's defaults, with which a dead peer is noticed after hours.
_DEFAULTS = {
    "application_name": "agentworld",
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}


@dataclass(frozen=True)
class Address:
    """Where a pool is. `url` has no secrets; `parameters` are those of `psycopg.connect`, secrets included.

    `schema`: the one that the URL names, None for the connection's own; `prepare_threshold`: as psycopg's.
    """

    url: str
    parameters: dict[str, Any]
    schema: str | None
    prepare_threshold: int | None

    @property
    def database(self) -> str:
        """The name of the database; that of the user where the URL names none, as libpq says."""
        return str(self.parameters.get("dbname") or self.parameters.get("user") or "")


def read_address(url: str) -> Address:
    """The parts of a URL; ConfigError, which shows no secret, where it cannot be read."""
    try:
        parsed = make_url(f"postgresql://{url.partition('://')[2]}")
        # libpq's parameters, several hosts included.
        _, parameters = PGDialect_psycopg().create_connect_args(_without(parsed, "schema", "prepare_threshold"))  # type: ignore[no-untyped-call]
        parameters = {**_DEFAULTS, **parameters}
        make_conninfo(**parameters)
    except psycopg.ProgrammingError as error:
        raise ConfigError(
            f"the pool's URL has an option that PostgreSQL's client does not know: {first_line(error)}",
            path="pool",
            hint="See docs/reference/configuration.md for ours; the others are those of libpq",
        ) from None
    except (ArgumentError, ValueError):
        raise ConfigError(
            "the pool's URL cannot be read",
            path="pool",
            hint="Write postgresql://user:password@host:5432/database, with %40 for @ and %2F for / in a password",
        ) from None
    if any("@" in str(each) for each in (parsed.host, parsed.database, parameters.get("host"))):
        # A password with an @ that is not escaped: what comes after it would be taken for the host, and shown.
        raise ConfigError(
            "the pool's URL has an @ in the name of its host or database",
            path="pool",
            hint="Write %40 for each @ in a user or password",
        )
    return Address(
        url=_shown(parsed).render_as_string(),
        parameters=parameters,
        schema=_schema(parsed.query.get("schema")),
        prepare_threshold=_threshold(parsed.query.get("prepare_threshold")),
    )


def _without(url: URL, *names: str) -> URL:
    return url.difference_update_query(names)


def _shown(url: URL) -> URL:
    # Built anew, as `set` cannot take a password away.
    shown = _without(url, *_SECRETS)
    return URL.create("postgresql", shown.username, None, shown.host, shown.port, shown.database, shown.query)


def _schema(given: str | tuple[str, ...] | None) -> str | None:
    if given is None:
        return None
    if not isinstance(given, str) or not _NAME.fullmatch(given) or given.lower().startswith("pg_"):
        raise ConfigError(
            "schema is not the name of a schema that a pool can be in",
            path="pool",
            hint="Use one name of up to 63 letters, digits and underscores that does not begin with a digit or pg_",
        )
    return given


def _threshold(given: str | tuple[str, ...] | None) -> int | None:
    if given is None:
        return PREPARE_AFTER
    if given == "none":
        return None
    if isinstance(given, str) and given.isascii() and given.isdigit() and len(given) < 6:
        return int(given)
    raise ConfigError(
        "prepare_threshold is a number of runs, or none", path="pool", hint="Use none behind a pooler of transactions"
    )
