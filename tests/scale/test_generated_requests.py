"""200,000 generated requests: each is answered, none by a fault of ours, all are on record, memory stays flat."""

import asyncio
import contextlib
import os
import re
import time
from pathlib import Path

import aiohttp
import pytest

from agentworld.pool import open_store
from tests.faults.test_kill import Process
from tests.gateway.storm import Storm

REQUESTS = int(os.environ.get("AGENTWORLD_SCALE_REQUESTS", "200000"))
"""With fewer than 30,000 the caches are not full early enough to see that memory is flat."""
PARTS = 40
PART_SECONDS = 600
GROWTH_KIB = 32 * 1024  # from the first quarter on: what allocators may keep, and less than 160 bytes a call

pytestmark = [pytest.mark.scale, pytest.mark.timeout(7200)]


@pytest.fixture
def servers(tmp_path):
    """The gateway as a process, and the URL of its pool."""
    url = f"sqlite:///{tmp_path}/pool.db"
    with contextlib.ExitStack() as running:
        engine = Process("tests.scale.generated_servers", "engine")
        running.callback(engine.end)
        gateway = Process("tests.scale.generated_servers", "gateway", engine.url, url)
        running.callback(gateway.end)
        yield gateway, url


def resident(process):
    """KiB in memory of the worker that serves."""
    (worker,) = process.children()
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{worker}/status").read_text())[1])


class Ledger:
    """What the answers say is on record, held against the pool."""

    def __init__(self, pool):
        self._pool = pool
        self._calls = []
        self._count = 0

    async def note(self, call, answer):
        """A call that has ended. A reply says where it is on record; an error does, unless the call was refused."""
        assert answer.trajectory is not None or answer.status != 200, (call, answer)
        if answer.trajectory is not None:
            self._calls.append((call, answer))

    def settle(self):
        """Each call since the last time is an exchange. All are counted, one in fifty is read."""
        self._count += len(self._calls)
        stored = self._pool.stats().exchanges
        for call, answer in self._calls[:: 50 if stored == self._count else 1]:
            found = self._pool.list_exchanges(answer.trajectory)
            assert any((each.error is None) == (answer.status == 200) for each in found), (call, answer)
        assert stored == self._count
        self._calls.clear()


async def test_generated_requests_are_answered_and_stored_in_flat_memory(servers, capsys):
    gateway, url = servers
    sizes = []
    async with aiohttp.ClientSession() as http:
        with contextlib.closing(open_store(url)) as pool:
            ledger = Ledger(pool)
            storm = Storm(http, gateway.url, ledger.note)
            for part in range(PARTS):
                begun = time.monotonic()
                async with asyncio.timeout(PART_SECONDS):
                    await storm.run(range(part * REQUESTS // PARTS, (part + 1) * REQUESTS // PARTS))
                took = time.monotonic() - begun
                ledger.settle()
                sizes.append(resident(gateway))
                calls = sum(storm.ended.values())
                rate = REQUESTS / PARTS / took
                with capsys.disabled():  # It takes minutes, and says how far it is.
                    print(f"{calls:,} calls, {rate:.0f} requests/s, gateway {sizes[-1] / 1024:.0f} MiB", flush=True)
            assert pool.check() == []
    faults = [line for line in gateway.lines if "error" in line]
    assert not faults, faults[:3]
    assert max(sizes[-PARTS // 4 :]) - max(sizes[: PARTS // 4]) < GROWTH_KIB, sizes
