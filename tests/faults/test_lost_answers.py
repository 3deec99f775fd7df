"""PostgreSQL commits, and the line breaks before it can say so: the caller hears that, and doing it again is safe."""

import pytest

from agentworld.errors import PoolError
from agentworld.pool import open_store
from agentworld.records import BatchSpec
from tests.faults.cut_line import CutLine
from tests.faults.workers import made_step
from tests.power.survivors import listed

SPEC = BatchSpec(method="reinforce", size=1, lease_seconds=600)


@pytest.fixture
def line(postgres):
    with CutLine(("127.0.0.1", postgres.port)) as line:
        yield line


@pytest.fixture
def pool(postgres, line):
    url = postgres.fresh_pool_url()
    pool = open_store(url.replace(f":{postgres.port}/", f":{line.port}/"))
    yield pool
    pool.close()
    postgres.drop_database(url.rpartition("/")[2])


def losing_the_answer(line, call):
    line.cut_next_commit()
    before = line.cuts
    with pytest.raises(PoolError, match="may have been written") as caught:
        call()
    assert "Send it again" in caught.value.hint
    assert line.cuts == before + 1


def test_steps_whose_commit_was_not_answered_are_stored_once(line, pool):
    pool.append_steps([made_step("t", 0)])
    losing_the_answer(line, lambda: pool.append_steps([made_step("t", 1), made_step("t", 2)]))
    again = pool.append_steps([made_step("t", 1), made_step("t", 2), made_step("t", 3)])
    assert [result.outcome for result in again] == ["duplicate", "duplicate", "stored"]
    assert [step.step_id for step in listed(pool)] == [f"t:{place}" for place in range(4)]
    assert pool.check() == []


def test_a_lease_and_its_end_whose_commits_were_not_answered(line, pool):
    pool.append_steps([made_step("t", 0)])
    losing_the_answer(line, lambda: pool.complete_trajectory("t", "finished", 1.0))
    pool.complete_trajectory("t", "finished", 1.0)
    losing_the_answer(line, lambda: pool.lease(SPEC, "c"))
    # It is leased, and nobody knows the batch: whoever comes back says so.
    assert pool.lease(SPEC, "c") is None
    assert len(pool.resume("c", [])["released"]) == 1
    batch = pool.lease(SPEC, "c")
    assert [item.key for item in batch.items] == ["t"]
    losing_the_answer(line, lambda: pool.ack(batch.batch_id, batch.epoch))
    pool.ack(batch.batch_id, batch.epoch)
    assert pool.lease(SPEC, "c") is None
    assert pool.stats().batches["acked"] == 1
