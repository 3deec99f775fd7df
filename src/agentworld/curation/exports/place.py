"""The folder of an export: made beside it under a name of its own, and there once all is in it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from agentworld.errors import ConfigError

PREFIX = ".agentworld-export-"
_MARK = "agentworld-export"


class Place:
    """Where an export is written: `inside` a private folder beside the target, which `arrive` makes the target.

    Nothing that is there already is replaced, followed or removed but what exports that were killed left: folders that
    have the mark of one to the same target on this host, which nobody holds. ConfigError where it cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            named = os.fsencode(folder)
        except UnicodeEncodeError:
            raise _refused(folder, "its name has no bytes on this file system") from None
        if b"\0" in named:
            raise _refused(folder, "its name has a NUL")
        with self.writing():
            self._target = folder.absolute()
            parent = self._target.parent
            if _is_there(self._target):
                raise _taken(folder)
            if not os.path.isdir(parent):
                raise ConfigError(f"the folder {parent} does not exist", path="folder", hint="Create it")
            mark = f"{_MARK}\n{socket.gethostname()}\n{self._target.name!r}\n".encode()
            _sweep(parent, mark)
            self._private = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
            self._held = -1
            try:
                self._held = os.open(self._private / _MARK, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                with contextlib.suppress(OSError):  # Where there are no locks nobody finds it free either.
                    fcntl.flock(self._held, fcntl.LOCK_EX)
                os.write(self._held, mark)  # Held before it is a mark, so that nobody takes it for a leftover.
                self.inside = self._private / "folder"
                self.inside.mkdir()
            except BaseException:
                self.leave()
                raise

    def arrive(self) -> None:
        """Make it the target; ConfigError where something else is there by now."""
        with self.writing():
            try:
                self._target.mkdir()  # Its own, since a rename takes the place of nothing but an empty folder.
            except FileExistsError:
                raise _taken(self.folder) from None
            try:
                self.inside.rename(self._target)
            except OSError:
                with contextlib.suppress(OSError):
                    self._target.rmdir()
                raise

    def leave(self) -> None:
        """Remove what is not the target."""
        shutil.rmtree(self._private, ignore_errors=True)
        if self._held >= 0:
            os.close(self._held)
            self._held = -1

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """ConfigError that says the folder for what the file system refuses."""
        try:
            yield
        except OSError as error:
            raise _refused(self.folder, error.strerror or str(error)) from error


def _is_there(target: Path) -> bool:
    try:
        os.lstat(target)
    except FileNotFoundError:
        return False
    return True


def _taken(folder: Path) -> ConfigError:
    return ConfigError(f"{folder} is there already", path="folder", hint="Name a folder that is not there")


def _refused(folder: Path, why: str) -> ConfigError:
    return ConfigError(
        f"the folder {str(folder)!r} cannot be written: {why}",
        path="folder",
        hint="Name another one, or see to its rights and to the space that is left",
    )


def _sweep(parent: Path, mark: bytes) -> None:
    """Remove what killed exports to the same target left."""
    try:
        with os.scandir(parent) as entries:
            left = [one.path for one in entries if one.name.startswith(PREFIX) and one.is_dir(follow_symlinks=False)]
    except OSError:  # One may write into folders that one may not list.
        return
    for path in left:
        with contextlib.suppress(OSError):
            held = os.open(os.path.join(path, _MARK), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.read(held, len(mark) + 1) == mark:
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(held)
