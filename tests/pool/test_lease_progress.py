"""A lease comes back with what fits, however much of the backlog is to leave it or does not fit: every transaction is
bounded, and every round gets somewhere. Limits are small here, in about the proportions of the real ones.
"""

import pytest

from agentworld.pool.sql import backlog, knowledge, leases, pulling, taking, walk
from agentworld.records import BatchSpec, Policy

from .samples import group, step

STALE, FRESH = Policy("m", "r", 0), Policy("m", "r", 5)
ORDERS = ["fifo", "freshest", "random", "priority"]


@pytest.fixture(params=["sqlite", "postgres"])
def store(request):
    return request.getfixturevalue(f"{request.param}_pool")


@pytest.fixture
def small(monkeypatch):
    """Few rows at once."""
    for module, name, value in (
        (taking, "TAKE_ROWS", 8),
        (taking, "TAKE_MARKED", 64),
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


def consumers(monkeypatch, orders):
    """A consumer for each order, with time for those few rows and without any: each has the whole pool before it."""
    for order in orders:
        yield f"{order}.time", order
        with monkeypatch.context() as without:
            without.setattr(taking, "TAKE_SECONDS", -1.0)
            without.setattr(leases, "LOOK_SECONDS", -1.0)
            yield f"{order}.none", order


def fill(pool, count, is_fresh, unit="trajectory"):
    names = [f"u{number:03}" for number in range(count)]
    policies = [FRESH if is_fresh(number) else STALE for number in range(count)]
    if unit == "group":
        for name, policy in zip(names, policies, strict=True):
            group(pool, name, [1.0, 0.0], step_changes={"policy": policy})
    else:
        pool.append_steps([step(name, policy=policy) for name, policy in zip(names, policies, strict=True)])
        for name in names:
            pool.complete_trajectory(name, "finished", 1.0)
    pool.set_policy(FRESH)


def leased(pool, spec, consumer):
    """The keys of one lease after the other until there is none."""
    found = []
    while (batch := pool.lease(spec, consumer)) is not None:
        found.append([item.key for item in batch.items])
    return found


def test_all_that_fits_comes_once_between_many_that_are_dropped(store, small, monkeypatch):
    fill(store, 45, lambda number: number % 20 == 0)
    for consumer, order in consumers(monkeypatch, ORDERS):
        spec = BatchSpec(method="reinforce", size=2, min_size=1, max_staleness=1, order=order, seed=3)
        found = sorted(key for keys in leased(store, spec, consumer) for key in keys)
        assert (consumer, found) == (consumer, ["u000", "u020", "u040"])
        assert store.stats().consumers[consumer].dropped == 42


def test_a_backlog_that_is_all_stale_ends_in_no_batch(store, small, monkeypatch):
    fill(store, 40, lambda number: False)
    for consumer, order in consumers(monkeypatch, ["freshest", "random"]):
        spec = BatchSpec(method="reinforce", max_staleness=1, order=order, seed=3)
        assert store.lease(spec, consumer) is None
        assert store.stats().consumers[consumer].dropped == 40


def test_groups_that_are_all_stale_end_in_no_batch(store, small, monkeypatch):
    fill(store, 12, lambda number: False, "group")
    for consumer, order in consumers(monkeypatch, ["freshest", "random"]):
        assert store.lease(BatchSpec(method="grpo", max_staleness=1, order=order, seed=3), consumer) is None
        assert store.stats().consumers[consumer].dropped == 12


def test_what_fits_behind_many_that_wait_is_found(store, small, monkeypatch):
    fill(store, 45, lambda number: number == 44)
    for consumer, order in consumers(monkeypatch, ["fifo"]):
        spec = BatchSpec(method="reinforce", where="trajectory_id == 'u044'", order=order)
        assert leased(store, spec, consumer) == [["u044"]]


def test_a_batch_larger_than_all_limits_is_whole(store, small, monkeypatch):
    fill(store, 40, lambda number: number % 4 != 0)
    for consumer, order in consumers(monkeypatch, ["fifo"]):
        spec = BatchSpec(method="reinforce", size=26, max_staleness=1, order=order)
        assert [len(keys) for keys in leased(store, spec, consumer)] == [26]


def test_pulling_is_no_look_in_vain(store, small, monkeypatch):
    """More chunks than a lease may look in vain."""
    monkeypatch.setattr(pulling, "PULL_ROWS", 2)
    fill(store, 24, lambda number: True)
    for consumer, order in consumers(monkeypatch, ["fifo"]):
        spec = BatchSpec(method="reinforce", size=22, order=order)
        assert [len(keys) for keys in leased(store, spec, consumer)] == [22]


def test_all_leases_that_have_run_out_are_given_back(store, clock, monkeypatch):
    """By one lease, also where one transaction ends as many as it may."""
    monkeypatch.setattr(taking, "_EXPIRED_AT_ONCE", 2)
    fill(store, 6, lambda number: True)
    spec = BatchSpec(method="reinforce", lease_seconds=10)
    assert [store.lease(spec, "c").items[0].key for _ in range(6)] == [f"u{number:03}" for number in range(6)]
    clock.now += 11
    assert len(store.lease(BatchSpec(method="reinforce", size=6), "c").items) == 6


def test_one_transaction_takes_out_no_more_than_its_limit(store, small, monkeypatch):
    fill(store, 40, lambda number: False)
    sizes = []
    aside = taking.batch_rows.set_aside

    def counted(txn, scope, found):
        sizes.append(len(found.aside))
        aside(txn, scope, found)

    monkeypatch.setattr(taking.batch_rows, "set_aside", counted)
    for consumer, order in consumers(monkeypatch, ["freshest"]):
        sizes.clear()
        assert store.lease(BatchSpec(method="reinforce", max_staleness=1, order=order), consumer) is None
        # A page may go beyond it.
        assert sum(sizes) == 40
        assert max(sizes) < walk.MOST_LEAVING + 4
