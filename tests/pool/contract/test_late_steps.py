"""What a step that comes after the end of its trajectory changes for consumers that have looked before."""

import pytest

from agentworld.records import BatchSpec, Policy
from tests.pool.samples import finished, step

SPECS = {
    "steps": {"where": "step_count >= 2"},
    "prompt tokens": {"where": "prompt_tokens >= 4"},
    "response tokens": {"where": "response_tokens >= 3"},
    "policy": {"max_staleness": 2},
}


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("unit", ["trajectory", "group"])
def test_a_late_step_is_seen_by_who_looked_before(pool, name, unit):
    pool.set_policy(Policy("m", "r", 0))
    policy = None if name == "policy" else Policy("m", "r", 0)
    finished(pool, "t", reward=1.0, step_changes={"policy": policy}, group_id="g", group_size=1)
    shape = {"method": "reinforce"} if unit == "trajectory" else {"method": "grpo", "groups": 1, "rollouts": 1}
    spec = BatchSpec(**shape, **SPECS[name])
    assert pool.lease(spec, "c") is None
    [added] = pool.append_steps([step("t")])
    assert added.outcome == "late"
    batch = pool.lease(spec, "c")
    assert [item.key for item in batch.items] == ["t" if unit == "trajectory" else "g"]
    pool.ack(batch.batch_id, batch.epoch)
    pool.append_steps([step("t")])
    assert pool.lease(spec, "c") is None
