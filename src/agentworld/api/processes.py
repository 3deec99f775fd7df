"""Processes that end when the one that started them ends, however it ended."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

PR_SET_PDEATHSIG = 1
_LOOK = 0.5  # seconds between two looks at the parent, where the kernel cannot tell


def die_with_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send `number` to this process when its parent `parent` ends; ends it now if that is gone.

    The signal comes at the end of the parent's *thread* that started this process, so that has to be its main thread.
    Outside Linux a thread looks at the parent twice a second.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    else:
        threading.Thread(target=_watch, args=(parent, number), name="parent-watch", daemon=True).start()
    # The parent may have ended before the request was in force.
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def _watch(parent: int, number: signal.Signals) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os.kill(os.getpid(), number)
