"""Places of exports that are being made."""

import threading

import pytest

from agentworld.api import dataset_files
from agentworld.errors import BusyError


async def test_a_transfer_that_nobody_reads_or_that_breaks_off_leaves_its_place_at_its_end(monkeypatch):
    monkeypatch.setattr(dataset_files, "_room", threading.BoundedSemaphore(2))
    unread, broken = (dataset_files._Transfer(b"{}\n", iter([]), dataset_files._Place()) for _ in range(2))
    pieces = broken.pieces()
    assert await anext(pieces) == b"{}\n"
    with pytest.raises(BusyError, match="are being made here already"):
        dataset_files._Place()
    for transfer in (unread, broken):
        await transfer.end()
        await transfer.end()  # Once is enough.
        dataset_files._Place()
    with pytest.raises(BusyError):
        dataset_files._Place()
