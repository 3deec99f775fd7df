"""A clock that is set while leases are out. Deadlines are times of the pool's clock, whatever happens to it.

Set forward, leases run out early: their units go to the next who asks, and the first holder is fenced off. Set back,
they run out late: nothing comes back before its deadline on the clock, and the holder can end the lease all the while.
"""

import pytest

from agentworld.errors import StaleLeaseError
from agentworld.records import BatchSpec

from ..samples import finished

SPEC = BatchSpec(method="reinforce", size=1, lease_seconds=60)
HOUR = 3600


@pytest.fixture
def held(pool):
    """A lease of the only unit."""
    finished(pool, "t", reward=1.0)
    return pool.lease(SPEC, "c")


def test_a_clock_set_forward_ends_leases_and_fences_their_holders_off(pool, clock, held):
    clock.now += HOUR
    again = pool.lease(SPEC, "c")
    assert [item.key for item in again.items] == ["t"]
    assert again.epoch > held.epoch
    with pytest.raises(StaleLeaseError):
        pool.ack(held.batch_id, held.epoch)
    pool.ack(again.batch_id, again.epoch)
    assert pool.lease(SPEC, "c") is None


def test_a_clock_that_is_put_right_again_does_not_revive_a_lease(pool, clock, held):
    clock.now += HOUR
    again = pool.lease(SPEC, "c")
    clock.now -= HOUR
    with pytest.raises(StaleLeaseError):
        pool.ack(held.batch_id, held.epoch)
    pool.ack(again.batch_id, again.epoch)
    assert pool.lease(SPEC, "c") is None


def test_a_clock_set_back_keeps_leases_until_it_has_caught_up(pool, clock, held):
    clock.now -= HOUR
    assert pool.lease(SPEC, "c") is None
    assert pool.extend(held.batch_id, held.epoch, 30) == clock.now + 30
    clock.now += 31
    assert [item.key for item in pool.lease(SPEC, "c").items] == ["t"]


def test_a_lease_can_be_ended_after_the_clock_was_set_back(pool, clock, held):
    clock.now -= HOUR
    pool.ack(held.batch_id, held.epoch)
    assert pool.lease(SPEC, "c") is None
    assert pool.stats().batches == {"acked": 1}


def test_events_keep_the_order_of_commits_whatever_the_clock_says(pool, clock):
    for number, jump in enumerate((0, HOUR, -2 * HOUR, 5)):
        clock.now += jump
        finished(pool, f"t{number}", reward=1.0)
    told = [event.trajectory_id for event in pool.events() if event.kind == "trajectory.created"]
    assert told == ["t0", "t1", "t2", "t3"]
    batch = pool.lease(BatchSpec(method="reinforce", size=4), "c")
    assert [item.key for item in batch.items] == told
