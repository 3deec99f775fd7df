"""Connections of one event loop read into the same memory.

The event loop's usual way makes room for 256 KiB before each read and gives back what was not needed. That is more than
the allocator keeps at hand, so the system finds, clears and takes back some pages each time, which costs twice what the
read itself does.
"""

from __future__ import annotations

import asyncio
import threading

READ_BYTES = 256 * 1024
"""As much is read at once."""
_of_thread = threading.local()


class Reader(asyncio.BufferedProtocol):
    """A protocol that is given what came as a view, which holds until `received` returns. Make it in the thread of its
    event loop.
    """

    def __init__(self) -> None:
        try:
            self._view: memoryview = _of_thread.view
        except AttributeError:
            self._view = _of_thread.view = memoryview(bytearray(READ_BYTES))

    def get_buffer(self, sizehint: int) -> memoryview:
        """See asyncio."""
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio."""
        self.received(self._view[:nbytes])

    def received(self, data: memoryview) -> None:
        """Something has come; it has to be copied where it is kept."""
        raise NotImplementedError
