import threading
from importlib.metadata import EntryPoint

import msgspec
import pytest

from agentworld.errors import ConfigError, InvalidRequestError, StaleLeaseError
from agentworld.pool.consumer import PoolConsumer
from agentworld.records import BatchSpec, adapting

from .samples import finished

SPEC = BatchSpec(method="sft", size=1)


def test_a_leased_batch_ends_by_ack_release_or_time(pool, clock):
    finished(pool, "a", reward=1.0)
    consumer = pool.consumer("c")
    batch = consumer.lease(SPEC)
    assert (batch.consumer, batch.unit, batch.method, batch.items[0].key) == ("c", "trajectory", "sft", "a")
    assert consumer.lease(SPEC) is None
    batch.release()
    batch = consumer.lease(SPEC)
    clock.now += 5
    assert batch.extend(50) == batch.deadline == clock.now + 50
    batch.ack()
    with pytest.raises(StaleLeaseError):
        batch.release()


def test_shards_are_equally_long_and_cover_the_batch(pool):
    for number in range(7):
        finished(pool, f"t{number}", reward=1.0)
    batch = pool.consumer("c").lease(BatchSpec(method="sft", size=7))
    shards = [batch.shard(rank, 3, micro_batch_size=2) for rank in range(3)]
    assert [len(one.items) for one in shards] == [4, 4, 4]
    real = [[item.key for item in one.items if not item.padding] for one in shards]
    assert [len(share) for share in real] == [3, 2, 2]
    assert sorted(key for share in real for key in share) == [f"t{number}" for number in range(7)]
    assert shards[1].metadata == {"shard": [1, 3], "micro_batches": 2}
    assert shards[1].deadline == batch.deadline
    for rank, world, size in ((3, 3, 1), (-1, 3, 1), (0, 0, 1), (0, 1, 0)):
        with pytest.raises(InvalidRequestError):
            batch.shard(rank, world, micro_batch_size=size)


def test_resume_goes_through(pool):
    finished(pool, "a")
    consumer = pool.consumer("c")
    batch = consumer.lease(SPEC)
    assert consumer.resume([batch.batch_id])["acknowledged"] == [batch.batch_id]
    assert consumer.lease(SPEC) is None


class Waiting:
    """A monotonic clock that sleeping moves; `then` runs when it passes a second."""

    def __init__(self, events=()):
        self.now = 0.0
        self.slept = []
        self.events = list(events)

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        assert seconds > 0
        self.slept.append(seconds)
        self.now += seconds
        while self.events and self.events[0][0] <= self.now:
            self.events.pop(0)[1]()


def test_a_stream_waits_backs_off_and_ends_after_its_timeout(pool):
    finished(pool, "a")
    waiting = Waiting([(3.0, lambda: finished(pool, "b")), (4.0, lambda: finished(pool, "c"))])
    consumer = PoolConsumer(pool, "c", clock=waiting, sleep=waiting.sleep)
    keys = []
    for batch in consumer.stream(SPEC, timeout=5.0):
        keys.append(batch.items[0].key)
        batch.ack()
    assert keys == ["a", "b", "c"]
    assert max(waiting.slept) <= 1.0
    assert waiting.slept[:3] == [0.02, 0.04, 0.08]
    assert 9.0 <= waiting.now <= 10.0


def test_a_stream_is_woken_by_what_is_committed(pool):
    """Long before it would look again by itself."""
    consumer = pool.consumer("c")
    keys = []
    arrived = threading.Event()

    def follow():
        for batch in consumer.stream(SPEC, timeout=30.0):
            keys.append(batch.items[0].key)
            batch.ack()
            arrived.set()
            if keys == ["a", "b"]:
                return

    thread = threading.Thread(target=follow)
    thread.start()
    for name in ("a", "b"):
        arrived.clear()
        finished(pool, name)
        assert arrived.wait(100)
    thread.join(100)
    assert keys == ["a", "b"]
    assert list(consumer.stream(SPEC, timeout=0.0)) == []


def test_an_adapter_is_found_by_its_name(pool, monkeypatch):
    finished(pool, "a")
    batch = pool.consumer("c").lease(SPEC)
    point = EntryPoint("keys", "tests.pool.test_consumer:ADAPTER", "agentworld.adapters")
    monkeypatch.setattr(adapting, "entry_points", lambda group: [point])
    assert batch.to("keys", suffix="!") == ["a!"]
    with pytest.raises(ConfigError) as caught:
        batch.to("other")
    assert "keys" in caught.value.hint
    with pytest.raises(ConfigError, match="prefix"):
        batch.to("keys", prefix="!")


class Options(msgspec.Struct, forbid_unknown_fields=True):
    suffix: str = ""


class Keys:
    name, says, options = "keys", "the keys of its units", Options

    def convert(self, batch, options):
        return [item.key + options.suffix for item in batch.items]


ADAPTER = Keys()


def test_a_consumer_has_a_name_that_can_be_an_id(pool):
    with pytest.raises(InvalidRequestError):
        pool.consumer("a b")
