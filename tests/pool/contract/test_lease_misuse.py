"""Specs and calls that mean nothing are refused, alike on every store, before anything is leased."""

import pytest

from agentworld.errors import InvalidRequestError
from agentworld.pool.lease_rules import requirements
from agentworld.records import BatchSpec, Policy

from ..samples import finished

SPECS = {
    "unit": "epoch",
    "method": None,
    "size": "4",
    "min_size": 1.5,
    "lease_seconds": "60",
    "where": 5,
    "channel": None,
    "require": "tokens",
    "order": 3,
    "seed": 1.5,
    "max_staleness": 2**70,
    "stale": 0,
    "skip_equal": 3,
    "pair_margin": "1",
    "max_deliveries": True,
}


@pytest.mark.parametrize("name", SPECS)
def test_a_value_of_another_type_is_refused_by_name(pool, name):
    finished(pool, "t", reward=1.0)
    with pytest.raises(InvalidRequestError) as refusal:
        pool.lease(BatchSpec(**{name: SPECS[name]}), "c")
    assert refusal.value.path == name
    assert pool.stats().batches == {}


@pytest.mark.parametrize(
    ("spec", "consumer", "path"), [(None, "c", "spec"), ({}, "c", "spec"), (BatchSpec(), 5, "consumer")]
)
def test_what_is_no_spec_and_no_consumer_is_refused(pool, spec, consumer, path):
    with pytest.raises(InvalidRequestError) as refusal:
        pool.lease(spec, consumer)
    assert refusal.value.path == path


@pytest.mark.parametrize("value", ["bat_x", 5, None, [5]])
def test_resume_and_requeue_want_lists_of_texts(pool, value):
    finished(pool, "t", reward=1.0)
    batch = pool.lease(BatchSpec(), "c")
    calls = {
        "applied": [lambda: pool.resume("c", value), lambda: pool.consumer("c").resume(value)],
        "keys": [lambda: pool.requeue("c", value)],
    }
    for path, refused in calls.items():
        for call in refused:
            with pytest.raises(InvalidRequestError) as refusal:
                call()
            assert refusal.value.path == path
    assert pool.get_batch(batch.batch_id).state == "leased"


def test_ids_that_no_batch_has_are_unknown(pool):
    assert pool.resume("c", ["a\x00", "\ud800", "é"])["unknown"] == ["a\x00", "\ud800", "é"]


def test_requirements_may_be_a_list_are_counted_once_and_are_limited(pool):
    finished(pool, "t", reward=1.0)
    assert requirements(BatchSpec(require=["tokens"] * 5000 + ["reward"]).resolved()) == ("tokens", "reward")
    assert pool.lease(BatchSpec(require=["tokens", "tokens"]), "c") is not None
    with pytest.raises(InvalidRequestError) as refusal:
        pool.lease(BatchSpec(require=tuple(f"label.a{number}" for number in range(33))), "c")
    assert refusal.value.path == "require"


def test_what_has_no_policy_waits_and_what_another_run_said_is_dropped(pool):
    pool.set_policy(Policy("m", "now", 1))
    finished(pool, "unknown", reward=1.0, step_changes={"policy": None})
    finished(pool, "another", reward=1.0, step_changes={"policy": Policy("m", "before", 1)})
    finished(pool, "fresh", reward=1.0, step_changes={"policy": Policy("m", "now", 1)})
    spec = BatchSpec(method="reinforce", max_staleness=1)
    batch = pool.lease(spec, "c")
    assert [item.key for item in batch.items] == ["fresh"]
    assert pool.lease(spec, "c") is None
    assert [item.key for item in pool.lease(BatchSpec(method="reinforce", min_size=1, size=3), "c").items] == [
        "unknown"
    ]
    dropped = [event.data for event in pool.events(limit=1000) if event.kind == "batch.dropped"]
    assert dropped == [{"consumer": "c", "unit": "trajectory", "stale": 1}]
