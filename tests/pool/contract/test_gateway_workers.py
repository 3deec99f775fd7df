"""What the workers of gateways say of themselves, and when they have drained."""

import pytest

from agentworld.pool import draining
from agentworld.pool.draining import KEPT_SECONDS, SILENT_SECONDS


class Seconds:
    """The monotonic clock of this process."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def seconds(monkeypatch):
    clock = Seconds()
    monkeypatch.setattr(draining, "monotonic", clock)
    return clock


def said(pool):
    return [(each.worker, each.in_flight, each.pauses) for each in pool.gateway_workers()]


def test_the_last_word_of_each_worker_counts(pool):
    assert pool.gateway_workers() == []
    pool.report_worker("b", 3, 0)
    pool.report_worker("a", 1, 0)
    pool.report_worker("b", 2, 1)
    assert said(pool) == [("a", 1, 0), ("b", 2, 1)]
    pool.forget_worker("a")
    pool.forget_worker("a")
    assert said(pool) == [("b", 2, 1)]


def test_a_silent_worker_counts_as_dead(pool, clock, seconds):
    pool.report_worker("killed", 5, 0)
    assert said(pool) == [("killed", 5, 0)]
    seconds.now += SILENT_SECONDS - 1
    pool.report_worker("alive", 0, 0)
    assert [each.worker for each in pool.gateway_workers()] == ["alive", "killed"]
    seconds.now += 1
    assert [each.worker for each in pool.gateway_workers()] == ["alive"]
    pool.report_worker("killed", 4, 0)
    assert said(pool) == [("alive", 0, 0), ("killed", 4, 0)]
    # In the end even its last word is forgotten.
    clock.now += KEPT_SECONDS + 1
    pool.report_worker("alive", 0, 0)
    clock.now += -KEPT_SECONDS
    assert "killed" not in [each.worker for each in pool.gateway_workers()]


def test_pauses_are_counted(pool):
    assert pool.gateway_state().pauses == 0
    for paused, count in ((True, 1), (True, 1), (False, 1), (True, 2), (False, 2)):
        pool.set_paused(paused)
        state = pool.gateway_state()
        assert (state.paused, state.pauses) == (paused, count)


def test_all_have_drained_when_each_knows_of_this_pause_and_has_nothing(pool):
    pool.report_worker("a", 0, 0)
    pool.report_worker("b", 2, 0)
    assert not pool.drain().drained  # There is no pause.
    pool.set_paused(True)
    found = pool.drain()
    assert (found.drained, found.workers, found.in_flight, found.unaware) == (False, 2, 2, 2)
    pool.report_worker("b", 2, 1)
    pool.report_worker("a", 0, 1)
    assert not pool.drain(0.01).drained
    pool.report_worker("b", 0, 1)
    assert pool.drain().drained
    # What a worker knew of an earlier pause is no answer to this one.
    pool.set_paused(False)
    pool.set_paused(True)
    assert (pool.drain().drained, pool.drain().unaware) == (False, 2)


def test_a_dead_worker_holds_up_nobody(pool, clock, seconds):
    pool.report_worker("killed", 7, 0)
    pool.set_paused(True)
    pool.report_worker("alive", 0, 1)
    assert not pool.drain().drained
    seconds.now += SILENT_SECONDS - 1
    clock.now += 1
    pool.report_worker("alive", 0, 1)
    assert not pool.drain().drained
    seconds.now += 1
    assert pool.drain().drained


@pytest.mark.parametrize("step", [60.0, 2 * KEPT_SECONDS, -2 * KEPT_SECONDS])
def test_a_step_of_the_clock_drains_no_call(pool, clock, seconds, step):
    pool.report_worker("busy", 1, 0)
    pool.report_worker("other", 0, 0)
    pool.set_paused(True)
    pool.report_worker("busy", 1, 1)
    pool.report_worker("other", 0, 1)
    assert not pool.drain().drained
    clock.now += step
    pool.report_worker("other", 0, 1)
    found = pool.drain()
    assert (found.drained, found.workers, found.in_flight) == (False, 2, 1)
    pool.report_worker("busy", 0, 1)
    assert pool.drain().drained
