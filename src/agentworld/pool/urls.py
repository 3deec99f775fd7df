"""What a pool's URL says of itself before it is read."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from urllib.parse import unquote

from agentworld.errors import ConfigError
from agentworld.pool.media.address import shown_folder

# A password may hold a ? or a / that should have been encoded: what is no port after a colon is one up to the last @.
_PASSWORD = re.compile(r"(://[^:/@?\[]*):(?!\d*(?:[/?,]|$)).*@")
# Before the options of the URL, that is.
_USER = re.compile(r"(://[^:/@]*)[:@].*@")
_NO_URL = re.compile(r"^.*:.*@")
_SECRET = re.compile(r"pass(?!file)|pwd|secret|token", re.IGNORECASE)
_MEDIA = "media"
_POSTGRES = ("postgresql", "postgres", "postgresql+psycopg")


def is_postgres(url: str) -> bool:
    """Whether the URL names a PostgreSQL server."""
    scheme, separator, _ = url.partition("://")
    return bool(separator) and scheme in _POSTGRES


def shown_url(url: str) -> str:
    """The URL as it may be printed: without its secrets, whether or not it can be read."""
    if "://" not in url:
        return _NO_URL.sub("***@", url)
    base, mark, options = _PASSWORD.sub(r"\1@", url).partition("?")
    shown = _USER.sub(r"\1@", base)
    return shown + mark + "&".join(_shown_option(each) for each in options.split("&"))


def _shown_option(option: str) -> str:
    """An option as it may be printed; names and values may be percent-encoded."""
    name, mark, value = option.partition("=")
    if not mark:
        return option
    if _SECRET.search(unquote(name)):
        return f"{name}=***"
    if unquote(name) == _MEDIA and "@" in (folder := unquote(value)):
        return f"{name}={shown_folder(folder)}"
    return option


def sqlite_path(url: str) -> Path:
    """The file that a URL of an SQLite pool names, its `media` option taken away; ConfigError where it names none."""
    base, mark, options = url.partition("?")
    rest = base.removeprefix("sqlite://")
    if mark:
        name = options.partition("=")[0].partition("&")[0]
        near = difflib.get_close_matches(name, ["media"], n=1)
        hint = "Did you mean media?" if near else "A pool in a file takes media=FOLDER alone"
        raise ConfigError(f"{shown_url(base)!r} has an unknown option {name!r}", path="pool", hint=hint)
    if rest == base or not rest.startswith("/") or len(rest) < 2 or rest.endswith("/"):
        raise ConfigError(
            f"{shown_url(url)!r} names no file",
            path="pool",
            hint="Three slashes and a relative path, or four and an absolute one",
        )
    if rest == "/:memory:":
        raise ConfigError(f"{shown_url(url)!r} is no file", path="pool", hint="A pool in memory is memory://")
    return Path(rest[1:])
