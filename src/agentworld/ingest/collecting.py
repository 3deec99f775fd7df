"""How often the collector of cycles comes while files are read."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_COLLECTING = (400_000, 20, 20)  # objects, and times that the younger ones were gone through


@contextmanager
def seldom_collecting() -> Iterator[None]:
    """The collector comes seldom: what is read holds no cycles, and it would go through all of it each time."""
    before = gc.get_threshold()
    gc.set_threshold(*_COLLECTING)
    try:
        yield
    finally:
        gc.set_threshold(*before)
