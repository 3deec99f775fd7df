"""The rate of leases is by the time in which there was something to lease."""

from types import SimpleNamespace

from agentworld.bench import leasing


class Few:
    """A pool of so many batches, each of which takes a second of the clock."""

    def __init__(self, count, clock):
        self._left, self._clock = count, clock

    def lease(self, spec, consumer):
        if not self._left:
            return None
        self._left -= 1
        self._clock[0] += 1.0
        return SimpleNamespace(batch_id="b", epoch=1)

    def ack(self, batch_id, epoch):
        pass


def test_a_pool_that_runs_empty_is_measured_until_then(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(leasing, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    assert leasing._lease_until(Few(3, clock), "c", 100.0) == 1.0
    assert leasing._lease_until(Few(1000, clock), "c", clock[0] + 10.0) == 1.0
    assert leasing._lease_until(Few(0, clock), "c", clock[0] + 10.0) == 0.0
