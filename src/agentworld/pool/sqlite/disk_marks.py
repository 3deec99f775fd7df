"""How far the pool's log is on the disk, as all processes that have the pool open tell one another.

A transaction may be committed without waiting for the disk, so that the next one, of whatever process, has the lock
meanwhile. It is acknowledged once the disk has it. SQLite does not tell readers how far the disk has come, so numbers
of such transactions stand in the lock file, which each process maps into its memory:

- `begun`: the latest that may be seen by readers,
- `committed`: all up to it are in the log,
- `durable`: all up to it are on the disk.

The log is written in order, so one wait for the disk is for everything that was committed before it.
"""

from __future__ import annotations

import mmap
import os
import weakref

from agentworld.syncing import sync

_BEGUN, _COMMITTED, _DURABLE = range(3)
_BYTES = 3 * 8
_sync = getattr(os, "fdatasync", os.fsync)


class DiskMarks:
    """What `begin`, `committed` and `all_durable` tell is told under the pool's lock; the rest by any thread."""

    def __init__(self, lock: int, log: str) -> None:
        """Under the pool's lock. `lock`: its file's descriptor, which stays the caller's; `log`: the log's path."""
        self._log = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._log)  # A read that is under way as the pool closes may ask still.
        sync(os.path.dirname(log))  # The log's name; its content is waited for below and from then on.
        size = os.fstat(lock).st_size
        if size < _BYTES:
            os.pwrite(lock, bytes(_BYTES - size), size)  # A part of the file without room on the disk would kill.
        self._numbers = memoryview(mmap.mmap(lock, _BYTES)).cast("Q")
        # Whatever stands there from before, nothing that was committed up to now counts as waiting from here on.
        self._numbers[_BEGUN] = max(self._numbers) + 1
        sync_log(self._log)
        self.all_durable()

    @property
    def begun(self) -> int:
        """The latest transaction that may be seen."""
        return self._numbers[_BEGUN]

    def begin(self) -> int:
        """The number of a transaction that is about to be committed without the disk."""
        number = self._numbers[_BEGUN] + 1
        self._numbers[_BEGUN] = number
        return number

    def committed(self) -> None:
        """The transaction that has begun last is in the log."""
        self._numbers[_COMMITTED] = self._numbers[_BEGUN]

    def all_durable(self) -> None:
        """Everything is on the disk, as a transaction was committed that waited for it."""
        self._numbers[_COMMITTED] = self._numbers[_DURABLE] = self._numbers[_BEGUN]

    def wait(self, number: int) -> None:
        """Return once the transaction, which is committed, is on the disk; OSError where the disk fails."""
        if self._numbers[_DURABLE] < number:
            committed = self._numbers[_COMMITTED]  # Before the disk is asked, as what comes after may come too late.
            sync_log(self._log)
            if self._numbers[_DURABLE] < committed:
                self._numbers[_DURABLE] = committed

    def settle(self) -> None:
        """Return once all that the caller has read is on the disk; OSError where the disk fails."""
        self.wait(self.begun)


def sync_log(log: int) -> None:
    """Wait until all that was written to the file is on the disk."""
    _sync(log)
