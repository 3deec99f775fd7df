"""Places of exports that are being made."""

import pytest

from agentworld.api import dataset_files
from agentworld.errors import BusyError


async def test_a_reply_that_nobody_reads_or_that_breaks_off_leaves_its_place():
    unread = dataset_files._sent(b"{}\n", iter([]), dataset_files._Place())
    broken = dataset_files._sent(b"{}\n", iter([]), dataset_files._Place())
    assert await anext(broken) == b"{}\n"
    with pytest.raises(BusyError, match="are being made here already"):
        dataset_files._Place()
    del unread
    await broken.aclose()
    places = [dataset_files._Place() for _ in range(dataset_files.MOST_AT_ONCE)]
    for place in places:
        place.leave()
        place.leave()  # Once is enough.
    with pytest.raises(BusyError):
        [dataset_files._Place() for _ in range(dataset_files.MOST_AT_ONCE + 1)]
