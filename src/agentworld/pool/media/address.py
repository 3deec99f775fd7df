"""The part of a pool's URL that says where its media lie: `?media=file:///folder` or `?media=s3://bucket/folder`."""

from __future__ import annotations

from urllib.parse import unquote

_OPTION = "media="


def shown_folder(url: str) -> str:
    """The URL of a media folder without what stands before an @: keys and passwords."""
    scheme, mark, rest = url.partition("://")
    return scheme + mark + rest.rpartition("@")[2] if mark else url


def without_secrets(text: str, url: str) -> str:
    """A message about a media folder that may repeat its URL, without the URL's secrets."""
    secret = url.partition("://")[2].rpartition("@")[0]
    for part in (secret, *secret.split(":")):
        text = text.replace(part, "***") if part else text
    return text


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
