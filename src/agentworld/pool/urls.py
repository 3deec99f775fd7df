"""What a pool's URL says of itself before it is read."""

from __future__ import annotations

import re

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
    base, mark, options = url.partition("?")
    return _USER.sub(r"\1@", base) + mark + _OPTION.sub(r"\1\2=***", options)
