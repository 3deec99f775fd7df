"""What a checkpoint contains is acknowledged once, wherever the trainer dies, and the rest is handed out again."""

import pytest

from agentworld.errors import ConfigError
from agentworld.pool.memory import MemoryPool
from agentworld.records import BatchSpec, NewTrajectory, Policy, Step
from agentworld.verl_loop.ledger import FILE, Ledger
from agentworld.verl_loop.versions import go_on, publish, run_that_speaks


@pytest.fixture
def pool():
    pool = MemoryPool()
    for name in "abcd":
        pool.create_trajectory(NewTrajectory(trajectory_id=name))
        pool.append_steps([Step(step_id=f"{name}-0", trajectory_id=name, prompt_ids=[1], response_ids=[2])])
        pool.complete_trajectory(name, "finished")
    yield pool
    pool.close()


def leased(pool, name, seconds=600.0):
    spec = BatchSpec(size=1, where=f"trajectory_id == '{name}'", require=("tokens",), lease_seconds=seconds)
    batch = pool.lease(spec, "verl")
    return {"batch_id": batch.batch_id, "epoch": batch.epoch, "trajectory_id": name}


def states(pool, origins):
    return [pool.get_batch(origin["batch_id"]).state for origin in origins]


def test_what_a_checkpoint_contains_is_acknowledged(pool, tmp_path):
    a, b, c = (leased(pool, name) for name in "abc")
    ledger = Ledger(tmp_path)
    # Two rows of one trajectory are one use; held-out ones have no lease.
    ledger.use(1, [a, {**a, "part": 1}, {"batch_id": None, "epoch": None, "trajectory_id": "v"}])
    ledger.use(2, [b])
    ledger.use(3, [c])
    assert ledger.settle(2, pool, "verl") == 2
    assert states(pool, [a, b, c]) == ["acked", "acked", "leased"]
    assert len(Ledger(tmp_path)) == 1
    # A lease that was lost meanwhile is taken anew; what is gone for good is passed over.
    pool.release(c["batch_id"], c["epoch"])
    d = leased(pool, "d")
    ledger.use(4, [d])
    pool.resume("verl", [])
    assert ledger.settle(4, pool, "verl") == 2
    assert pool.lease(BatchSpec(size=1), "verl") is None
    assert ledger.settle(9, pool, "verl") == 0


def test_a_restart_goes_by_the_number_of_the_checkpoint(pool, tmp_path):
    a, b, c = (leased(pool, name) for name in "abc")
    ledger = Ledger(tmp_path)
    ledger.use(1, [a])
    ledger.use(2, [b])
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"step":3,"batch')  # Killed while it noted the third step.
    Ledger(tmp_path).use(3, [c])  # What comes after the broken line is on a line of its own.
    assert len(Ledger(tmp_path)) == 3
    # The checkpoint of step 1 was written, and its acknowledgement was not.
    found = Ledger(tmp_path).resume(1, pool, "verl")
    assert (found["acknowledged"], sorted(found["released"])) == (
        [a["batch_id"]],
        sorted([b["batch_id"], c["batch_id"]]),
    )
    assert len(Ledger(tmp_path)) == 0
    again = {item.key for batch in iter(lambda: pool.lease(BatchSpec(size=1), "verl"), None) for item in batch.items}
    assert again == {"b", "c", "d"}
    (tmp_path / FILE).write_text("{}\n")
    with pytest.raises(ConfigError, match="is damaged"):
        Ledger(tmp_path)


def test_versions_count_anew_where_training_goes_back(pool):
    assert go_on(pool, "policy", "run", 0) == Policy("policy", "run", 0)
    publish(pool, Policy("policy", "run", 7))
    publish(pool, Policy("policy", "run", 6))  # A slower process.
    assert pool.gateway_state().policies["policy"].version == 7
    assert go_on(pool, "policy", "run", 7).run == "run"
    assert go_on(pool, "policy", "run", 5) == Policy("policy", "run~1", 5)
    assert run_that_speaks(pool, "policy", "run") == "run~1"
    publish(pool, Policy("policy", "run~1", 6))
    assert go_on(pool, "policy", "run", 4).run == "run~2"
    assert run_that_speaks(pool, "policy", "other") == "other"
