"""Files of paths: folders in order, archives member by member."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from agentworld.errors import InvalidRequestError, NotFoundError
from agentworld.ingest.archives import expanded
from agentworld.ingest.files import DiskEntry, StreamEntry
from agentworld.ingest.format import Notes
from agentworld.ingest.limits import USUAL, Limits
from agentworld.ingest.members import is_of_tools
from agentworld.ingest.run import Note


def check_paths(paths: Iterable[Path]) -> None:
    """NotFoundError for a path that is not there, InvalidRequestError for one that is neither file nor folder."""
    for path in paths:
        if not path.exists():
            raise NotFoundError(f"There is no {path}", path="paths")
        if not path.is_dir() and not path.is_file():
            raise InvalidRequestError(f"{path} is neither a file nor a folder", path="paths")


def files(paths: Iterable[Path], note: Notes, limits: Limits = USUAL) -> Iterator[DiskEntry]:
    """The files at the paths. In folders, in order of their names, hidden ones are left out, which is said once, and
    links that lead out of the folder are not followed.
    """
    for path in paths:
        if not path.is_dir():
            yield DiskEntry(path, limits=limits, note=note)
            continue
        root = path.resolve()
        hidden: list[str] = []
        for count, file in enumerate(_within(root, root, root.name or path.name, note, hidden)):
            if count == limits.members:
                why = f"the folder has more than {limits.members} files; what follows is not read"
                note(Note(file=root.name, place="$", why=why, hint="See --max-members"))
                break
            name = f"{root.name}/{file.relative_to(root).as_posix()}" if root.name else file.as_posix()
            yield DiskEntry(file, name, limits=limits, note=note)
        if hidden:
            such = Path(hidden[0]).relative_to(root).as_posix()
            why = f"{len(hidden)} hidden files and folders are not read, such as {such}"
            note(Note(file=root.name, place="$", why=why, hint="Name them to have them read", lost=False))


def _within(folder: Path, root: Path, name: str, note: Notes, hidden: list[str]) -> Iterator[Path]:
    try:
        found = sorted(os.scandir(folder), key=lambda each: each.name)
    except OSError as error:
        note(Note(file=name, place="$", why=f"the folder cannot be read: {error.strerror}"))
        return
    for each in found:
        if each.name.startswith("."):
            if not is_of_tools(each.name):
                hidden.append(each.path)
            continue
        below, path = f"{name}/{each.name}", Path(each.path)
        if each.is_symlink():
            target = path.resolve()
            if not target.is_relative_to(root):
                note(Note(file=below, place="$", why="a link that leads out of the folder is not followed", lost=False))
            # What it leads to within the folder is read where it is.
            continue
        if each.is_dir(follow_symlinks=False):
            yield from _within(path, root, below, note, hidden)
        elif stat.S_ISREG(each.stat(follow_symlinks=False).st_mode):
            yield path


def entries(paths: Iterable[Path], note: Notes, limits: Limits = USUAL) -> Iterator[StreamEntry]:
    """All entries at the paths, those within archives too."""
    for file in files(paths, note, limits):
        for entry in expanded(file):
            entry.disk = file
            yield entry
