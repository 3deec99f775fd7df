"""Where a backup or an export lies until it is whole: beside its name, as NAME.partial, which one writer has at a time.

What a writer that was killed left there is taken over. It is held by a lock on what lies there, where the file system
has locks, so that nothing has to be cleared away for the next writer.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from agentworld.errors import ConfigError


@contextlib.contextmanager
def partial_file(path: Path) -> Iterator[Path]:
    """An empty file for what becomes `path`; removed at the end unless it was renamed. ConfigError where another
    writer makes the same, here or in another process.
    """
    partial = path.with_name(path.name + ".partial")
    held = _hold(partial, lambda: os.open(partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666))
    try:
        os.truncate(held, 0)
        for end in ("-journal", "-wal", "-shm"):  # of a database that a writer left
            partial.with_name(partial.name + end).unlink(missing_ok=True)
        yield partial
    finally:
        _remove_own(partial, held, partial.unlink)
        os.close(held)  # Last: locks of SQLite on this file end with the first descriptor that is closed.


@contextlib.contextmanager
def partial_folder(path: Path) -> Iterator[Path]:
    """As `partial_file`, with an empty folder."""
    partial = path.with_name(path.name + ".partial")

    def open_it() -> int:
        while True:
            partial.mkdir(exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # Another writer renamed it in between.
                return os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    held = _hold(partial, open_it)
    try:
        for name in os.listdir(partial):
            left = partial / name
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left)
            else:
                left.unlink()
        yield partial
    finally:
        _remove_own(partial, held, lambda: shutil.rmtree(partial, ignore_errors=True))
        os.close(held)


def _hold(partial: Path, open_it: Callable[[], int]) -> int:
    while True:
        held = open_it()
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(held)
            raise ConfigError(
                f"{partial} is being written by another backup or export",
                path="path",
                hint="Wait for that one, or name another path",
            ) from None
        except OSError:
            return held  # There are no locks on this file system.
        if _is(partial, held):
            return held
        os.close(held)  # The other writer renamed or removed it in between.


def _is(partial: Path, held: int) -> bool:
    mine = os.fstat(held)
    try:
        there = partial.stat()
    except FileNotFoundError:
        return False
    return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)


def _remove_own(partial: Path, held: int, remove: Callable[[], None]) -> None:
    """Remove it where it still is what is held; another writer may have made the next one already."""
    if _is(partial, held):
        remove()
