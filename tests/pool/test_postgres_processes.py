"""Several processes on one PostgreSQL: nothing lost, nothing twice, events in commit order without gaps."""

import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from agentworld.pool import open_store
from agentworld.records import BatchSpec

PROCESSES, TRAJECTORIES, STEPS = 3, 8, 3
WRITER = textwrap.dedent(
    """
    import sys
    from concurrent.futures import ThreadPoolExecutor
    from agentworld.pool import open_store
    from agentworld.records import NewTrajectory, Step

    url, name, trajectories, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    pool = open_store(url)
    shared = list(range(1000))

    def rollout(number):
        trajectory = f"{name}-{number}"
        pool.create_trajectory(NewTrajectory(trajectory_id=trajectory))
        for index in range(steps):
            sent = Step(step_id=f"{trajectory}:{index}", trajectory_id=trajectory, prompt_ids=shared,
                        response_ids=[number, index], token_source="submitted")
            assert pool.append_steps([sent])[0].outcome == "stored"
        pool.complete_trajectory(trajectory, "finished", 1.0)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(rollout, range(trajectories)))
    pool.close()
    """
)
CONSUMER = textwrap.dedent(
    """
    import sys
    from agentworld.errors import PoolError
    from agentworld.pool import open_store
    from agentworld.records import BatchSpec

    pool = open_store(sys.argv[1])
    spec = BatchSpec(method="reinforce", size=2, min_size=1, lease_seconds=600)
    for _ in sys.stdin:  # A line for each look, so that it waits for what the test knows to be there.
        batch = pool.lease(spec, "trainer")
        if batch is not None:
            pool.ack(batch.batch_id, batch.epoch)
        print(*[item.key for item in batch.items] if batch is not None else [], flush=True)
    pool.close()
    """
)


def start(code, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@pytest.fixture
def pool(postgres, postgres_url):
    store = open_store(postgres_url)
    yield store
    store.close()


def test_writers_consumers_and_followers_share_one_pool(postgres_url, pool):
    """Consumers lease while writers write; each trajectory is trained on once, whoever of them gets it."""
    seen, ended, woken = [], threading.Event(), threading.Event()

    def follow():
        # As a follower does that only ever asks for what is after the last one that it saw.
        while True:
            woken.wait(1)
            woken.clear()
            last_look = ended.is_set()
            while found := pool.events(after=seen[-1].sequence if seen else 0, limit=7):
                seen.extend(found)
            if last_look:
                return

    pool.watch(woken.set)
    follower = threading.Thread(target=follow)
    follower.start()
    writers = [start(WRITER, postgres_url, name, TRAJECTORIES, STEPS) for name in range(PROCESSES)]
    consumers = [start(CONSUMER, postgres_url) for _ in range(PROCESSES)]
    trained, wanted = [], PROCESSES * TRAJECTORIES
    for _ in range(100_000):
        for consumer in consumers:
            consumer.stdin.write("\n")
            consumer.stdin.flush()
        for consumer in consumers:
            trained += consumer.stdout.readline().split()
        if len(trained) >= wanted or any(writer.poll() for writer in writers):
            break
    for process in (*writers, *consumers):
        process.communicate(timeout=150)
        assert process.returncode == 0
    ended.set()
    woken.set()
    follower.join(60)

    assert len(trained) == len(set(trained)) == wanted
    assert pool.lease(BatchSpec(method="reinforce", size=1), "trainer") is None
    stats = pool.stats()
    assert (stats.steps, stats.trajectories) == (wanted * STEPS, {"finished": wanted})
    assert stats.batches.get("leased", 0) == 0
    # 1000 ids are 7 blocks, which all share, and what is left of each sequence is its own.
    assert stats.tokens_stored == 7 * 128 + wanted * STEPS * (1002 % 128)
    assert [event.sequence for event in seen] == list(range(1, stats.last_event + 1))
    assert [event.at for event in seen] == sorted(event.at for event in seen)
    appended = [event.step_id for event in seen if event.kind == "step.appended"]
    assert len(appended) == len(set(appended)) == wanted * STEPS
    for name in range(PROCESSES):
        for number in range(TRAJECTORIES):
            steps = pool.list_steps(trajectory_id=f"{name}-{number}").items
            assert [step.step_index for step in steps] == list(range(STEPS))


def test_those_who_open_a_pool_at_once_make_it_once_whatever_isolation_the_server_begins_with(postgres):
    pool = open_store(postgres.fresh_pool_url())
    pool.close()
    key = pool._database.key  # The same in every database, as the schema's name is.
    url = postgres.create_database("isolated")
    postgres.execute("ALTER DATABASE isolated SET default_transaction_isolation = 'repeatable read'")
    waiting = (
        f"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = "
        f"(SELECT oid FROM pg_database WHERE datname = 'isolated') AND (classid::bigint << 32) | objid::bigint = {key}"
    )
    with ThreadPoolExecutor(3) as threads, psycopg.connect(url, autocommit=True) as holder:
        holder.execute("SELECT pg_advisory_lock(%s)", [key])
        pools = [threads.submit(open_store, url) for _ in range(3)]
        while holder.execute(waiting).fetchone() != (3,):
            assert not any(pool.done() for pool in pools)
        holder.execute("SELECT pg_advisory_unlock(%s)", [key])
        for pool in pools:
            pool.result().close()
    postgres.drop_database("isolated")
