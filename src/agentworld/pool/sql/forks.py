"""Pools in a process that was forked from the one that opened them, as loaders of training data and servers fork.

The writing thread is not there, so that a write would wait for ever; connections and the file lock are still the other
process's, which using or closing them would disturb. So nothing of the pool can be reached there any more.
"""

from __future__ import annotations

import os
from typing import Any, Protocol
from weakref import WeakSet

from agentworld.errors import PoolError


class Inherited(Protocol):
    """What has to know that it is in a forked process."""

    def after_fork(self) -> None:
        """Called in the forked process, where no other thread runs."""


_open: WeakSet[Inherited] = WeakSet()
_kept: list[dict[str, Any]] = []
"""What inherited pools held: never closed here, and so not given to the garbage collector."""


def watch(pool: Inherited) -> None:
    """Tell the pool of each fork of this process."""
    _open.add(pool)


def keep(held: dict[str, Any]) -> None:
    """Hold what must not be closed in this process."""
    _kept.append(held)


def inherited() -> PoolError:
    """The error of whoever uses such a pool."""
    return PoolError(
        "this pool was opened by the process that this one was forked from, and cannot be used here",
        hint="Open the pool in the process that uses it, such as in a loader's worker, or start processes by spawn",
    )


def _tell() -> None:
    for pool in list(_open):
        pool.after_fork()
    _open.clear()


os.register_at_fork(after_in_child=_tell)
