"""Images that lie beside a file in a folder that is imported, by the paths that the file names them by."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agentworld.dialects.media import sniff
from agentworld.ingest.entry import Entry
from agentworld.ingest.files import DiskEntry
from agentworld.ingest.formats.media import MAX_BYTES

Beside = Callable[[str], bytes | None]


def nothing(address: str) -> bytes | None:
    """Beside a file that was named by itself, or lies in an archive, nothing is read."""
    return None


def beside(entry: Entry) -> Beside:
    """Reads what an entry's file names by a path, from its own folder or one above, the imported one being the last."""
    below = entry.name.count("/")
    if not isinstance(entry, DiskEntry) or not below or not entry.name.endswith(entry.path.name):
        return nothing
    path = entry.path
    found: list[tuple[Path, list[Path]]] = []  # once something is asked for, as most files name nothing

    def read(address: str) -> bytes | None:
        if not address or "://" in address or "\0" in address:
            return None
        if not found:
            file = path.resolve()
            root = file.parents[below - 1]
            # Data sets name images by paths from the folder that holds their own, too.
            bases = [folder for folder in file.parents if folder.is_relative_to(root) or folder == root.parent]
            found.append((root, bases))
        root, bases = found[0]
        return next((data for base in bases if (data := _image(base, address, root)) is not None), None)

    return read


def _image(base: Path, address: str, root: Path) -> bytes | None:
    """The bytes of an image within the root; None for whatever is no image, or lies outside."""
    try:
        path = (base / address).resolve()
        if not path.is_relative_to(root) or not path.is_file() or path.stat().st_size > MAX_BYTES:
            return None
        with path.open("rb") as file:
            if sniff(file.read(16)) is None:
                return None
            file.seek(0)
            return file.read()
    except (OSError, ValueError, UnicodeError, RuntimeError):
        return None
