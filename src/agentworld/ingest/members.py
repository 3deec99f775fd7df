"""Names of members of archives: text for people, never paths."""

from __future__ import annotations


def is_hidden(name: str) -> bool:
    """Whether a member is hidden, as in a folder."""
    return any(part.startswith(".") or part == "__MACOSX" for part in name.split("/") if part not in (".", ""))


def shown(name: str) -> str:
    """A member's name for people."""
    return "/".join(part for part in name.replace("\\", "/").split("/") if part not in ("", "."))
