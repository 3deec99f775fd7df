"""What is kept of each row while many are looked at: in a temporary file, so that memory does not grow with them."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from agentworld.curation.checks.minhash import PERMUTATIONS, Signature
from agentworld.errors import PoolFullError

_CACHE_KIB = 16 << 10
_BYTES = 2 * PERMUTATIONS  # of a signature
_BLOCK = 1_024  # signatures
_CLOSE = 16  # signatures that are read for each one that is wanted, sooner than one by one

Places = npt.NDArray[np.int64]


class Scratch:
    """Tables in a file that is nobody else's, and that is gone with the process however that ends."""

    def __init__(self) -> None:
        with _told(_of_tables):
            self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
            for pragma in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{_CACHE_KIB}"):
                self._database.execute(f"PRAGMA {pragma}").close()
            self._database.execute("BEGIN").close()

    def make(self, *tables: str) -> None:
        """Create tables, each `NAME (COLUMNS)`."""
        for table in tables:
            self.all(f"CREATE TABLE {table}")

    def all(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows that a statement gives."""
        with _told(_of_tables):
            return self._database.execute(statement, values).fetchall()

    def one(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """The first value of the first row that it gives, or None."""
        with _told(_of_tables):
            found = self._database.execute(statement, values).fetchone()
        return None if found is None else found[0]

    def many(self, statement: str, values: Iterable[Sequence[Any]]) -> int:
        """Do it with each of the values; how many rows that changed."""
        with _told(_of_tables):
            return self._database.executemany(statement, values).rowcount

    def close(self) -> None:
        """Forget everything."""
        self._database.close()

    def __enter__(self) -> Scratch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Signatures:
    """Signatures of texts by place, in the order in which they came."""

    def __init__(self) -> None:
        with _told(tempfile.gettempdir):
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # Closed by close().
        self._held: list[bytes] = []
        self._written = 0

    def __len__(self) -> int:
        return self._written + len(self._held)

    def add(self, one: Signature) -> None:
        """Put one in the next place."""
        self._held.append(one.tobytes())
        if len(self._held) >= _BLOCK:
            self._write()

    def blocks(self) -> Iterator[Signature]:
        """All of them, (up to 1,024, 128) at a time."""
        self._write()
        for begin in range(0, self._written, _BLOCK):
            yield self._read(begin, min(_BLOCK, self._written - begin))

    def at(self, places: Places) -> Signature:
        """(len(places), 128): those in these places, which are in order."""
        self._write()
        first, last = int(places[0]), int(places[-1])
        if last - first < _CLOSE * len(places):
            return self._read(first, last - first + 1)[places - first]
        return np.concatenate([self._read(place, 1) for place in places.tolist()])

    def close(self) -> None:
        """Forget everything."""
        self._file.close()

    def _write(self) -> None:
        if not self._held:
            return
        with _told(tempfile.gettempdir):
            self._file.seek(self._written * _BYTES)
            left = memoryview(b"".join(self._held))
            while left:
                left = left[self._file.write(left) :]
        self._written += len(self._held)
        self._held = []

    def _read(self, begin: int, count: int) -> Signature:
        with _told(tempfile.gettempdir):
            self._file.seek(begin * _BYTES)
            return np.frombuffer(self._file.read(count * _BYTES), np.uint16).reshape(count, PERMUTATIONS)


@contextmanager
def _told(folder: Callable[[], str]) -> Iterator[None]:
    """An error that names the folder where there is no room."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise PoolFullError(
            f"nothing can be kept for a while in {folder()}: {error}",
            hint="Set TMPDIR to a folder with room: 500 bytes for each trajectory",
        ) from error


def _of_tables() -> str:
    """The folder where SQLite has files without a name, which is not always Python's."""
    asked = (os.environ.get("SQLITE_TMPDIR"), os.environ.get("TMPDIR"), "/var/tmp", "/usr/tmp", "/tmp")
    return next((each for each in asked if each and os.path.isdir(each) and os.access(each, os.W_OK | os.X_OK)), ".")
