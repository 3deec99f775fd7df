"""Names of members of archives: text for people, never paths."""

from __future__ import annotations

# What tools keep for themselves beside what people made.
_OF_TOOLS = frozenset(
    (
        ".DS_Store",
        ".Spotlight-V100",
        ".Trash",
        ".Trashes",
        ".fseventsd",
        ".git",
        ".hg",
        ".svn",
        ".venv",
        ".gitignore",
        ".gitattributes",
        ".gitkeep",
        "__MACOSX",
    )
)


def is_of_tools(name: str) -> bool:
    """Whether a file or folder, by its own name, is what nobody would import: of version control or an operating
    system.
    """
    return name in _OF_TOOLS or name.startswith("._")


def is_left_out(name: str) -> bool:
    """Whether a member is of such a tool, or in a folder of one. Agents keep sessions in hidden folders of their own,
    which are read.
    """
    return any(is_of_tools(part) for part in _parts(name))


def leads_out(name: str) -> bool:
    """Whether a member's name leads out of the archive."""
    return ".." in _parts(name)


def shown(name: str) -> str:
    """A member's name for people."""
    return "/".join(_parts(name))


def _parts(name: str) -> list[str]:
    return [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]


LEADS_OUT = "a name that leads out of the archive is refused"
