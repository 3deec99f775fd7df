"""A file-system shim for SQLite: it sees each write, sync, truncation, creation and removal, and may refuse them.

SQLite reaches files through a table of functions, its VFS. The shim registers a copy of the one in use with some
entries replaced, in the very library that Python's sqlite3 module runs on. The files are real; nothing is emulated.
"""

from __future__ import annotations

import _sqlite3
import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int64, c_void_p
from pathlib import Path

SQLITE_OK = 0
# The name goes through as a pointer: SQLite keeps it for as long as the file is open.
_OPEN = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, POINTER(c_int))
_DELETE = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int)
_WRITE = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
_TRUNCATE = CFUNCTYPE(c_int, c_void_p, c_int64)
_SYNC = CFUNCTYPE(c_int, c_void_p, c_int)
_SET_CALL = CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p)
_GET_CALL = CFUNCTYPE(c_void_p, c_void_p, c_char_p)
_OPEN_DIRECTORY = CFUNCTYPE(c_int, c_char_p, POINTER(c_int))


class _Vfs(Structure):
    """sqlite3_vfs, version 3 (sqlite.org/c3ref/vfs.html)."""

    _fields_ = [
        ("iVersion", c_int), ("szOsFile", c_int), ("mxPathname", c_int), ("pNext", c_void_p), ("zName", c_char_p),
        ("pAppData", c_void_p), ("xOpen", _OPEN), ("xDelete", _DELETE), ("xAccess", c_void_p),
        ("xFullPathname", c_void_p), ("xDlOpen", c_void_p), ("xDlError", c_void_p), ("xDlSym", c_void_p),
        ("xDlClose", c_void_p), ("xRandomness", c_void_p), ("xSleep", c_void_p), ("xCurrentTime", c_void_p),
        ("xGetLastError", c_void_p), ("xCurrentTimeInt64", c_void_p), ("xSetSystemCall", _SET_CALL),
        ("xGetSystemCall", _GET_CALL), ("xNextSystemCall", c_void_p),
    ]  # fmt: skip


class _Methods(Structure):
    """sqlite3_io_methods, version 3 (sqlite.org/c3ref/io_methods.html)."""

    _fields_ = [
        ("iVersion", c_int), ("xClose", c_void_p), ("xRead", c_void_p), ("xWrite", _WRITE), ("xTruncate", _TRUNCATE),
        ("xSync", _SYNC), ("xFileSize", c_void_p), ("xLock", c_void_p), ("xUnlock", c_void_p),
        ("xCheckReservedLock", c_void_p), ("xFileControl", c_void_p), ("xSectorSize", c_void_p),
        ("xDeviceCharacteristics", c_void_p), ("xShmMap", c_void_p), ("xShmLock", c_void_p), ("xShmBarrier", c_void_p),
        ("xShmUnmap", c_void_p), ("xFetch", c_void_p), ("xUnfetch", c_void_p),
    ]  # fmt: skip


class _File(Structure):
    _fields_ = [("pMethods", POINTER(_Methods))]


class Watcher:
    """What hears of each call to a file; this one does nothing about it.

    `before_*` may return one of SQLite's error codes, and then the call is not made.
    """

    def before_write(self, path: str, offset: int, size: int) -> int:
        """A write is about to happen."""
        return SQLITE_OK

    def before_sync(self, path: str) -> int:
        """A sync is about to happen."""
        return SQLITE_OK

    def created(self, path: str) -> None:
        """A file was made that was not there."""

    def wrote(self, path: str, offset: int, data: bytes) -> None:
        """A write is done."""

    def truncated(self, path: str, size: int) -> None:
        """A truncation is done."""

    def synced(self, path: str) -> None:
        """All writes to the file before this are on the disk."""

    def deleted(self, path: str) -> None:
        """The file's name is gone."""

    def synced_folder(self, path: str) -> None:
        """All names made and removed in the folder before this are on the disk."""


class Unwatchable(RuntimeError):
    """Python's SQLite does not let its functions be found."""


def library() -> ctypes.CDLL:
    """The SQLite that Python's sqlite3 module runs on; Unwatchable where its functions are hidden inside of Python."""
    origin = getattr(_sqlite3, "__file__", None)
    found = ctypes.CDLL(origin)  # None: the program itself, into which the module is built.
    try:
        found.sqlite3_vfs_find.restype = POINTER(_Vfs)
        found.sqlite3_libversion.restype = c_char_p
        said = found.sqlite3_libversion().decode()
    except AttributeError:
        raise Unwatchable(
            "this Python has SQLite built in with its functions hidden, so its file access cannot be watched; "
            "run these tests with a Python that loads libsqlite3 as a shared library (a distribution's, pyenv's)"
        ) from None
    if said != _sqlite3.sqlite_version:
        raise Unwatchable(f"SQLite {said} was found, but Python runs on {_sqlite3.sqlite_version}")
    return found


@contextlib.contextmanager
def watched(watcher: Watcher, folder: Path) -> Iterator[None]:
    """All connections opened in here, by whatever thread, report to `watcher` what they do to files in `folder`."""
    shim = _Shim(library(), watcher, str(folder.resolve()))
    shim.install()
    try:
        yield
    finally:
        shim.remove()


_kept: list[object] = []  # SQLite may call these as long as a file is open, which nobody here knows.


class _Shim:
    def __init__(self, sqlite: ctypes.CDLL, watcher: Watcher, folder: str) -> None:
        self._sqlite, self._watcher, self._folder = sqlite, watcher, folder
        self._paths: dict[int, str] = {}
        self._tables: dict[int, _Methods] = {}
        self._local = threading.local()
        self._original: _Vfs = sqlite.sqlite3_vfs_find(None).contents
        self._vfs = _Vfs.from_buffer_copy(self._original)
        self._vfs.zName = b"watched"
        self._vfs.xOpen = _OPEN(self._open)
        self._vfs.xDelete = _DELETE(self._delete)
        self._open_directory = _OPEN_DIRECTORY(
            self._original.xGetSystemCall(ctypes.addressof(self._original), b"openDirectory")
        )
        self._directory = _OPEN_DIRECTORY(self._on_directory)
        _kept.append(self)

    def install(self) -> None:
        assert self._sqlite.sqlite3_vfs_register(ctypes.byref(self._vfs), 1) == SQLITE_OK
        self._set_directory(ctypes.cast(self._directory, c_void_p))

    def remove(self) -> None:
        self._set_directory(None)
        assert self._sqlite.sqlite3_vfs_unregister(ctypes.byref(self._vfs)) == SQLITE_OK
        assert self._sqlite.sqlite3_vfs_register(ctypes.byref(self._original), 1) == SQLITE_OK

    def _set_directory(self, function: c_void_p | None) -> None:
        original = ctypes.addressof(self._original)
        assert self._original.xSetSystemCall(original, b"openDirectory", function) == SQLITE_OK

    def _open(self, _: int, name: int | None, file: int, flags: int, out: object) -> int:
        path = os.fsdecode(ctypes.string_at(name)) if name else ""
        seen = os.path.dirname(path) == self._folder and not path.endswith("-shm")
        is_new = seen and not os.path.exists(path)
        result: int = self._original.xOpen(ctypes.addressof(self._original), name, file, flags, out)
        self._paths.pop(file, None)
        if result == SQLITE_OK and seen:
            self._paths[file] = path
            opened = ctypes.cast(file, POINTER(_File)).contents
            opened.pMethods = ctypes.pointer(self._table(opened.pMethods))
            if is_new and os.path.exists(path):
                self._watcher.created(path)
        return result

    def _table(self, methods: ctypes._Pointer[_Methods]) -> _Methods:
        """The functions of a kind of file, with ours between."""
        address = ctypes.addressof(methods.contents)
        if address not in self._tables:
            original, table = methods.contents, _Methods.from_buffer_copy(methods.contents)

            def write(file: int, data: int, size: int, offset: int) -> int:
                path = self._paths[file]
                if refused := self._watcher.before_write(path, offset, size):
                    return refused
                result: int = original.xWrite(file, data, size, offset)
                if result == SQLITE_OK:
                    self._watcher.wrote(path, offset, ctypes.string_at(data, size))
                return result

            def truncate(file: int, size: int) -> int:
                result: int = original.xTruncate(file, size)
                if result == SQLITE_OK:
                    self._watcher.truncated(self._paths[file], size)
                return result

            def sync(file: int, flags: int) -> int:
                path = self._paths[file]
                if refused := self._watcher.before_sync(path):
                    return refused
                return self._with_folders(lambda: original.xSync(file, flags), lambda: self._watcher.synced(path))

            table.xWrite, table.xTruncate, table.xSync = _WRITE(write), _TRUNCATE(truncate), _SYNC(sync)
            self._tables[address] = table
        return self._tables[address]

    def _delete(self, _: int, name: bytes, sync_folder: int) -> int:
        path, original = os.fsdecode(name), ctypes.addressof(self._original)
        seen = os.path.dirname(path) == self._folder and not path.endswith("-shm")
        return self._with_folders(
            lambda: self._original.xDelete(original, name, sync_folder),
            lambda: self._watcher.deleted(path) if seen else None,
        )

    def _with_folders(self, call: Callable[[], int], done: Callable[[], None]) -> int:
        """What `call` gives; where it went well, `done` and the folders that it opened, which it does to sync them."""
        self._local.folders = folders = []
        result = call()
        if result == SQLITE_OK:
            done()
            for folder in folders:
                self._watcher.synced_folder(folder)
        return result

    def _on_directory(self, name: bytes, out: object) -> int:
        result: int = self._open_directory(name, out)
        folder = os.path.dirname(os.fsdecode(name))
        opened: list[str] | None = getattr(self._local, "folders", None)
        if result == SQLITE_OK and folder == self._folder and opened is not None:
            opened.append(folder)
        return result
