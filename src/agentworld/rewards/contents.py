"""Files by their content, so that what reads another one is another evaluator."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import islice
from pathlib import Path

MOST_BYTES = 256 << 20
MOST_FILES = 20_000
_CHUNK = 1 << 20


def digest_of_contents(paths: Iterable[str]) -> str:
    """32 hex digits of the names within these files and folders, and of what the files hold.

    Of MOST_FILES files, in the order of their names, and of MOST_BYTES; of those behind, the sizes. A file that cannot
    be read, or is not there, counts as that.
    """
    found = blake2b(digest_size=16)
    left = MOST_BYTES
    for path in sorted(paths):
        found.update(b"\0" + os.fsencode(path))
        for file in islice(_files(Path(path)), MOST_FILES):
            try:
                size = file.stat().st_size
                found.update(f"\0{size}\0".encode() + os.fsencode(os.path.relpath(file, path)))
                if size <= left:
                    left -= size
                    with open(file, "rb") as read:
                        while piece := read.read(_CHUNK):
                            found.update(piece)
            except OSError as error:
                found.update(f"\0{error.errno}".encode())
    return found.hexdigest()


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        if path.is_file():
            yield path
        return
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(each for each in folders if each != "__pycache__")
        yield from (each for each in (Path(folder, name) for name in sorted(names)) if each.is_file())
