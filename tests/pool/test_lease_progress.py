"""A lease comes back with what fits, however much of the backlog is to leave it or does not fit: every transaction is
bounded, and every round gets somewhere. Limits are small here, in about the proportions of the real ones.
"""

import pytest

from agentworld.pool.sql import backlog, knowledge, leases, pulling, walk
from agentworld.records import BatchSpec, Policy

from .samples import finished, group

STALE, FRESH = Policy("m", "r", 0), Policy("m", "r", 5)
ORDERS = ["fifo", "freshest", "random", "priority"]


@pytest.fixture(params=["sqlite", "postgres"])
def store(request):
    return request.getfixturevalue(f"{request.param}_pool")


@pytest.fixture(params=["time", "no time"])
def small(request, monkeypatch):
    """Few rows at once, with time for them, or without any."""
    for module, name, value in (
        (leases, "TAKE_ROWS", 8),
        (leases, "TAKE_MARKED", 64),
        (leases, "LOOK_ROWS", 20),
        (leases, "_MOST_LOOKS", 3),
        (knowledge, "MOST_DUE", 12),
        (walk, "MOST_LEAVING", 6),
        (walk, "_FIRST_PAGE", 2),
        (walk, "_LARGE_PAGE", 4),
        (walk, "_PAGE", dict.fromkeys(walk._PAGE, 4)),
        (backlog, "RESHUFFLE_ROWS", 8),
    ):
        monkeypatch.setattr(module, name, value)
    if request.param == "no time":
        for name in ("TAKE_SECONDS", "LOOK_SECONDS"):
            monkeypatch.setattr(leases, name, -1.0)


def fill(pool, count, is_fresh, unit="trajectory"):
    for number in range(count):
        changes = {"policy": FRESH if is_fresh(number) else STALE}
        if unit == "group":
            group(pool, f"u{number:03}", [1.0, 0.0], step_changes=changes)
        else:
            finished(pool, f"u{number:03}", reward=1.0, step_changes=changes)
    pool.set_policy(FRESH)


def leased(pool, spec, consumer="c"):
    """The keys of one lease after the other until there is none."""
    found = []
    while (batch := pool.lease(spec, consumer)) is not None:
        found.append([item.key for item in batch.items])
    return found


@pytest.mark.parametrize("order", ORDERS)
def test_all_that_fits_comes_once_between_many_that_are_dropped(store, small, order):
    fill(store, 60, lambda number: number % 20 == 0)
    spec = BatchSpec(method="reinforce", size=2, min_size=1, max_staleness=1, order=order, seed=3)
    found = sorted(key for keys in leased(store, spec) for key in keys)
    assert found == ["u000", "u020", "u040"]
    assert store.stats().consumers["c"].dropped == 57


@pytest.mark.parametrize("order", ["freshest", "random"])
def test_a_backlog_that_is_all_stale_ends_in_no_batch(store, small, order):
    fill(store, 40, lambda number: False)
    assert store.lease(BatchSpec(method="reinforce", max_staleness=1, order=order, seed=3), "c") is None
    assert store.stats().consumers["c"].dropped == 40


@pytest.mark.parametrize("order", ["freshest", "random"])
def test_groups_that_are_all_stale_end_in_no_batch(store, small, order):
    fill(store, 20, lambda number: False, "group")
    assert store.lease(BatchSpec(method="grpo", max_staleness=1, order=order, seed=3), "c") is None
    assert store.stats().consumers["c"].dropped == 20


def test_what_fits_behind_many_that_wait_is_found(store, small):
    fill(store, 60, lambda number: number == 59)
    spec = BatchSpec(method="reinforce", where="trajectory_id == 'u059'")
    assert leased(store, spec) == [["u059"]]


def test_a_batch_larger_than_all_limits_is_whole(store, small):
    fill(store, 60, lambda number: number % 4 != 0)
    spec = BatchSpec(method="reinforce", size=40, max_staleness=1)
    assert [len(keys) for keys in leased(store, spec)] == [40]


def test_pulling_is_no_look_in_vain(store, small, monkeypatch):
    """More chunks than a lease may look in vain."""
    monkeypatch.setattr(pulling, "PULL_ROWS", 2)
    fill(store, 40, lambda number: True)
    spec = BatchSpec(method="reinforce", size=38)
    assert [len(keys) for keys in leased(store, spec)] == [38]


def test_all_leases_that_have_run_out_are_given_back(store, clock, monkeypatch):
    """By one lease, also where one transaction ends as many as it may."""
    monkeypatch.setattr(leases, "_EXPIRED_AT_ONCE", 2)
    fill(store, 6, lambda number: True)
    spec = BatchSpec(method="reinforce", lease_seconds=10)
    assert [store.lease(spec, "c").items[0].key for _ in range(6)] == [f"u{number:03}" for number in range(6)]
    clock.now += 11
    assert len(store.lease(BatchSpec(method="reinforce", size=6), "c").items) == 6


def test_one_transaction_takes_out_no_more_than_its_limit(store, small, monkeypatch):
    fill(store, 40, lambda number: False)
    sizes = []
    aside = leases.batch_rows.set_aside

    def counted(txn, scope, found):
        sizes.append(len(found.aside))
        aside(txn, scope, found)

    monkeypatch.setattr(leases.batch_rows, "set_aside", counted)
    assert store.lease(BatchSpec(method="reinforce", max_staleness=1, order="freshest"), "c") is None
    # A page may go beyond it.
    assert sum(sizes) == 40
    assert max(sizes) < walk.MOST_LEAVING + 4
