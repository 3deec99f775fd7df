"""The advisory lock beside the database file.

Every write transaction and every checkpoint of every process runs under it. SQLite's own busy wait is unfair to late
comers and, before SQLite 3.51.3, a checkpoint could race with a commit; one lock closes both. The kernel queues those
who wait, and frees the lock when its holder dies.
"""

from __future__ import annotations

import errno
import fcntl
import os
import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType

from agentworld.errors import PoolError, PoolFullError

LOCK_SECONDS = 30.0
_Work = Callable[[], bool]


class FileLock:
    """An exclusive lock on PATH, one holder among all processes and threads with their own FileLock.

    Used by one thread at a time, for which its own thread may work meanwhile. PoolError where it is not free within
    `seconds`. A lock file that was removed or replaced is opened anew, so that processes that start later meet the same
    lock. `look` is called before the lock is waited for and before its file is made anew; what it raises ends the
    attempt. `descriptor` is that of the file while the lock is held, the `opened`th one.
    """

    def __init__(self, path: Path, seconds: float = LOCK_SECONDS) -> None:
        self.path = path
        self.look: Callable[[], None] = _nothing
        self._text = str(path)
        self._seconds = seconds
        self._waiting: _Waiting | None = None
        self._thread: _Thread | None = None
        self.opened = 0
        self.descriptor = self._open()

    def __enter__(self) -> FileLock:
        self.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()

    def acquire(self) -> None:
        """Have the lock."""
        self.run(_nothing)

    def run(self, work: Callable[[], None]) -> None:
        """Have the lock and call `work`, which lets go of it; return or raise as that does.

        Where the lock is not free at once, the thread that waits for it does the work: others wait for the lock, so
        nothing is to happen between its coming and the work, such as the waking of another thread.
        """
        deadline = time.monotonic() + self._seconds
        while not self._run(partial(self._begin, work), deadline):
            pass

    def release(self) -> None:
        """Let go of the lock."""
        fcntl.flock(self.descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of the file; again is no error."""
        descriptor, self.descriptor = self.descriptor, -1
        if self._waiting is not None:
            self._waiting.abandon()  # The thread that waits closes it.
        elif descriptor >= 0:
            os.close(descriptor)
        self._end_thread()

    def after_fork(self) -> None:
        """Leave it to the process that this one was forked from: what that holds when it dies is free then."""
        if self.descriptor >= 0:
            os.close(self.descriptor)

    def _run(self, work: _Work, deadline: float) -> bool:
        if self._waiting is not None:
            self.look()
            if not self._is_in_place():
                fresh = self._open()
                self._waiting.abandon()
                self._end_thread()
                self._waiting, self.descriptor = None, fresh
        if self._waiting is None or not self._waiting.want_again(work):
            self._waiting = None
            try:
                fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.look()
                if self._thread is None:
                    self._thread = _Thread()
                self._waiting = _Waiting(self.descriptor, self._thread, work)
            else:
                return work()
        waiting = self._waiting
        if not waiting.begins(deadline - time.monotonic()):
            raise PoolError(
                f"the lock file {self.path} was held by another process for {self._seconds:g} s; nothing was written",
                hint=f"Continue or end its holder, which may be stopped: `lsof {self.path}` names who has it open",
            )
        self._waiting = None
        return waiting.outcome()

    def _begin(self, work: Callable[[], None]) -> bool:
        """Call `work` now that the lock is held; False where that is the lock of a file that is no longer in place."""
        try:
            is_in_place = self._is_in_place()
            if not is_in_place:
                # Whoever comes now opens another file, so what is held here keeps nobody out.
                self.look()
                fresh = self._open()
        except BaseException:
            self.release()
            raise
        if is_in_place:
            work()
            return True
        lost, self.descriptor = self.descriptor, fresh
        os.close(lost)
        return False

    def _end_thread(self) -> None:
        if self._thread is not None:
            self._thread.end()
            self._thread = None

    def _open(self) -> int:
        self.opened += 1
        try:
            return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            what = f"the lock file {self.path} cannot be opened: {error.strerror}"
            if error.errno == errno.ENOSPC:
                raise PoolFullError(what, hint="Free space on its disk and open the pool again") from None
            raise PoolError(what, hint="Make its folder writable") from None

    def _is_in_place(self) -> bool:
        try:
            there = os.stat(self._text)
        except FileNotFoundError:
            return False
        own = os.fstat(self.descriptor)
        return (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino)


def _nothing() -> None:
    return


class _Thread:
    """Does one thing after the other, for all waits of one lock: to start a thread takes as long as many a commit."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="agentworld-pool-lock", daemon=True).start()

    def do(self, work: Callable[[], None]) -> None:
        """After what it does now."""
        self._queue.put(work)

    def end(self) -> None:
        """Once all is done."""
        self._queue.put(None)

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            work()


class _Waiting:
    """A wait in the kernel's queue by another thread, since flock itself waits without limit, and the work after it.

    After a wait that took too long the thread stays where it is, and the next attempt waits for the same one: its place
    in the queue is kept, and threads do not pile up. What it gets while nobody wants it, it lets go of at once.
    """

    def __init__(self, descriptor: int, thread: _Thread, work: _Work) -> None:
        self._descriptor = descriptor
        self._guard = threading.Lock()
        self._ended = threading.Event()
        self._work: _Work | None = work  # None while nobody wants the lock
        self._begun = False
        self._close = False
        self._outcome: bool | BaseException = False
        thread.do(self._wait)

    def begins(self, seconds: float) -> bool:
        """Whether the work has begun by then; nobody wants the lock any more where it has not."""
        try:
            if self._ended.wait(seconds):
                return True
        finally:
            with self._guard:
                if not (self._begun or self._ended.is_set()):
                    self._work = None
        return self._begun

    def outcome(self) -> bool:
        """What the work, which has begun, returns or raises."""
        self._ended.wait()
        outcome, self._outcome = self._outcome, False
        try:
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome
        finally:
            del outcome  # An error holds this frame, which would hold the error.

    def want_again(self, work: _Work) -> bool:
        """Whether the thread still waits, and does this work then."""
        with self._guard:
            if self._ended.is_set():
                return False
            self._work = work
            return True

    def abandon(self) -> None:
        """Close the descriptor, once the thread has ended."""
        with self._guard:
            self._work, self._close = None, True
            if self._ended.is_set():
                os.close(self._descriptor)

    def _wait(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            is_held = True
        except OSError as error:
            self._outcome, is_held = error, False
        with self._guard:
            work = self._work
            self._begun = work is not None
            if work is None:
                if self._close:
                    os.close(self._descriptor)
                elif is_held:
                    fcntl.flock(self._descriptor, fcntl.LOCK_UN)
                self._ended.set()
                return
        if is_held:
            try:
                self._outcome = work()
            except BaseException as error:
                self._outcome = error
        with self._guard:
            if self._close:
                os.close(self._descriptor)
            self._ended.set()
