"""Where a backup or an export lies until it is whole: beside its name, as NAME.partial, which one writer has at a time.

What a writer that was killed left there is taken over, and nothing else: no link is followed, and no folder emptied
that holds anything but an export. It is held by a lock on what lies there, where the file system has locks, so that
nothing has to be cleared away for the next writer.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from agentworld.errors import AgentWorldError, ConfigError, PoolFullError

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_OPENING = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


@contextlib.contextmanager
def partial_file(path: Path) -> Iterator[Path]:
    """An empty file for what becomes `path`; removed at the end unless it was renamed. ConfigError where another
    writer makes the same, here or in another process; faults of writing it are errors that name `path`.
    """
    partial = path.with_name(path.name + ".partial")
    with writing(path):
        held = _hold(partial, lambda: os.open(partial, os.O_RDWR | os.O_CREAT | _OPENING, 0o666))
        try:
            if not stat.S_ISREG(os.fstat(held).st_mode):
                raise _not_ours(partial)
            try:
                os.truncate(held, 0)
                for end in ("-journal", "-wal", "-shm"):  # of a database that a writer left
                    partial.with_name(partial.name + end).unlink(missing_ok=True)
                yield partial
            finally:
                _remove_own(partial, held, partial.unlink)
        finally:
            os.close(held)  # Last: locks of SQLite on this file end with the first descriptor that is closed.


@contextlib.contextmanager
def partial_folder(path: Path) -> Iterator[Path]:
    """As `partial_file`, with an empty folder."""
    partial = path.with_name(path.name + ".partial")

    def open_it() -> int:
        while True:
            with contextlib.suppress(FileExistsError):
                partial.mkdir()
            with contextlib.suppress(FileNotFoundError):  # Another writer renamed it in between.
                return os.open(partial, os.O_RDONLY | os.O_DIRECTORY | _OPENING)

    with writing(path):
        held = _hold(partial, open_it)
        try:
            left = [partial / name for name in os.listdir(partial)]
            if not all(_is_of_an_export(each) for each in left):
                raise _not_ours(partial)
            try:
                for each in left:
                    each.unlink()
                yield partial
            finally:
                _remove_own(partial, held, lambda: shutil.rmtree(partial, ignore_errors=True))
        finally:
            os.close(held)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """What the file system, or SQLite, refuses while `path` is written, as an error that names it."""
    try:
        try:
            os.fsencode(path)
        except UnicodeEncodeError:
            raise _refused(path, "its name has no bytes on this file system") from None
        if "\0" in str(path):
            raise _refused(path, "its name has a NUL")
        yield
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise no_room(path) from error
        raise _refused(path, error.strerror or str(error)) from error
    except sqlite3.Error as error:
        raise (no_room(path) if is_full(error) else _refused(path, str(error))) from error


def is_full(error: sqlite3.Error) -> bool:
    """Whether SQLite says that a disk is full."""
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF == sqlite3.SQLITE_FULL


def no_room(path: Path) -> PoolFullError:
    """The error of a disk that is too small for `path`."""
    return PoolFullError(
        f"no space is left for {path}; nothing of it is kept",
        hint="Free space on its disk, or name a path on another one",
    )


def _refused(path: Path, why: str) -> AgentWorldError:
    return ConfigError(
        f"{str(path)!r} cannot be written: {why}", path="path", hint="Name another path, or see to the folder's rights"
    )


def _not_ours(partial: Path) -> ConfigError:
    return ConfigError(
        f"{partial} is in the way, and no writer of ours left it there",
        path="path",
        hint="Move it away, or name another path",
    )


def _is_of_an_export(left: Path) -> bool:
    known = left.suffix == ".parquet" or left.name == "manifest.json"
    return known and stat.S_ISREG(left.lstat().st_mode)


def _hold(partial: Path, open_it: Callable[[], int]) -> int:
    while True:
        try:
            held = open_it()
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO) and os.path.lexists(partial):
                raise _not_ours(partial) from None
            raise
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
        there = partial.lstat()
    except FileNotFoundError:
        return False
    return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)


def _remove_own(partial: Path, held: int, remove: Callable[[], None]) -> None:
    """Remove it where it still is what is held; another writer may have made the next one already."""
    if _is(partial, held):
        remove()
