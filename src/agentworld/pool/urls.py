"""What a pool's URL says of itself before it is read."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from agentworld.errors import ConfigError

# A password may hold a ? too, before the first slash.
_AUTHORITY = re.compile(r"(://[^:/@?]*):[^/]*@")
# Up to the last @ of what is no option, as a password may hold one that should have been %40.
_USER = re.compile(r"(://[^:/@]*):.*@")
_OPTION = re.compile(r"(^|&)((?:ssl)?password)=[^&]*")
_POSTGRES = ("postgresql", "postgres", "postgresql+psycopg")


def is_postgres(url: str) -> bool:
    """Whether the URL names a PostgreSQL server."""
    scheme, separator, _ = url.partition("://")
    return bool(separator) and scheme in _POSTGRES


def shown_url(url: str) -> str:
    """The URL as it may be printed: without its secrets, whether or not it can be read."""
    base, mark, options = _AUTHORITY.sub(r"\1@", url).partition("?")
    return _USER.sub(r"\1@", base) + mark + _OPTION.sub(r"\1\2=***", options)


def sqlite_path(url: str) -> Path:
    """The file that a URL of an SQLite pool names, its `media` option taken away; ConfigError where it names none."""
    base, mark, options = url.partition("?")
    rest = base.removeprefix("sqlite://")
    if mark:
        name = options.partition("=")[0].partition("&")[0]
        near = difflib.get_close_matches(name, ["media"], n=1)
        hint = "Did you mean media?" if near else "A pool in a file takes media=FOLDER alone"
        raise ConfigError(f"{base!r} has an unknown option {name!r}", path="pool", hint=hint)
    if rest == base or not rest.startswith("/") or len(rest) < 2 or rest.endswith("/"):
        raise ConfigError(
            f"{url!r} names no file", path="pool", hint="Three slashes and a relative path, or four and an absolute one"
        )
    if rest == "/:memory:":
        raise ConfigError(f"{url!r} is no file", path="pool", hint="A pool in memory is memory://")
    return Path(rest[1:])
