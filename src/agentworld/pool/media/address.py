"""The part of a pool's URL that says where its media lie: `?media=file:///folder` or `?media=s3://bucket/folder`."""

from __future__ import annotations

from urllib.parse import unquote

_OPTION = "media="


def split_media(url: str) -> tuple[str, str | None]:
    """The URL without its `media` option, and what that says; None where there is none."""
    base, mark, query = url.partition("?")
    if not mark:
        return url, None
    options = query.split("&")
    folders = [unquote(option.removeprefix(_OPTION)) for option in options if option.startswith(_OPTION)]
    others = [option for option in options if not option.startswith(_OPTION)]
    rest = base + (mark + "&".join(others) if others else "")
    return (rest, folders[-1]) if folders and folders[-1] else (url if not folders else rest, None)
