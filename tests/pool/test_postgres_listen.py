"""Who waits for events hears of commits, of this process and of others, through lost connections too; and the clock."""

import queue

import psycopg
import pytest
from sqlalchemy import text

from agentworld.pool.postgres import PostgresPool, clock, listener
from agentworld.pool.postgres.clock import ServerClock
from agentworld.pool.sql.statements import compiled
from agentworld.records import NewTrajectory, Policy

from .samples import step

SECONDS = 30


@pytest.fixture
def two(postgres_url):
    pools = PostgresPool(postgres_url), PostgresPool(postgres_url)
    yield pools
    for pool in pools:
        pool.close()


def heard(pool):
    """A queue that gets something at each wake, and the function that ends it; the first wake is over."""
    wakes = queue.Queue()
    stop = pool._database.listen(lambda: wakes.put(True))
    assert wakes.get(timeout=SECONDS)
    return wakes, stop


def until_quiet(wakes):
    while not wakes.empty():
        wakes.get()


def test_commits_with_events_are_heard_by_other_pools_and_this_one(two):
    writer, reader = two
    (near, _), (far, _) = heard(writer), heard(reader)
    for write in (
        lambda: writer.append_steps([step("t")]),
        lambda: writer.set_policy(Policy("m", "r", 1)),
        lambda: writer.create_trajectory(NewTrajectory(trajectory_id="u")),
    ):
        write()
        assert near.get(timeout=SECONDS)
        assert far.get(timeout=SECONDS)


def test_what_writes_no_event_wakes_nobody(two):
    writer, reader = two
    wakes, _ = heard(reader)
    writer._writer.submit(lambda txn: txn.count("x")).result()
    writer.append_steps([step("t", step_id="a")])
    assert wakes.get(timeout=SECONDS)
    # Had the first commit been told, the second would come after it; no more than the second's is on its way.
    assert wakes.empty()


def test_a_pool_in_another_schema_is_not_heard(postgres, two):
    wakes, _ = heard(two[0])
    other = PostgresPool(f"{two[1].url.replace('postgres@', f'postgres:{postgres.password}@')}?schema=other")
    other.append_steps([step("t")])
    two[1].append_steps([step("t")])
    assert wakes.get(timeout=SECONDS)
    assert wakes.empty()
    other.close()
    postgres.execute("DROP SCHEMA other CASCADE", two[0].url.rpartition("/")[2])


def test_whoever_stopped_is_not_woken(two):
    writer, reader = two
    stays, _ = heard(reader)
    goes = queue.Queue()
    stop = reader._database.listen(lambda: goes.put(True))
    writer.append_steps([step("t")])
    assert (stays.get(timeout=SECONDS), goes.get(timeout=SECONDS)) == (True, True)
    stop()
    stop()
    writer.append_steps([step("t")])
    assert stays.get(timeout=SECONDS)
    assert goes.empty()


def test_a_lost_connection_is_made_anew_and_what_went_unheard_is_made_up_for(postgres, two, monkeypatch):
    monkeypatch.setattr(listener, "_FIRST_PAUSE", 0.01)
    writer, reader = two
    wakes, _ = heard(reader)
    ended = postgres.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
    assert ended == [(True,)]
    assert wakes.get(timeout=SECONDS)  # For what came while nobody listened.
    until_quiet(wakes)
    writer.append_steps([step("t")])
    assert wakes.get(timeout=SECONDS)


def test_the_clock_is_the_servers_and_counts_on(monkeypatch):
    here = [50.0]
    monkeypatch.setattr(clock.time, "monotonic", lambda: here[0])
    server = ServerClock()
    assert server.is_due()
    server.observe(1_000_000.0)
    assert not server.is_due()
    here[0] += 1.5
    assert server() == 1_000_001.5
    # The server's clock was set back: time stands still until it has caught up.
    server.observe(999_999.0)
    assert server() == 1_000_001.5
    here[0] += 2
    assert server() == 1_000_001.5
    here[0] += 1
    assert server() == 1_000_002.0
    here[0] += clock.REFRESH_SECONDS
    assert server.is_due()
    server.observe(2_000_000.0)
    assert server() == 2_000_000.0


def test_times_are_the_servers(postgres_url, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 5.0)
    pool = PostgresPool(postgres_url)
    with pool._database.reading() as reader:
        asked = compiled(text("SELECT CAST(extract(epoch FROM clock_timestamp()) AS FLOAT)"))
        before = reader.execute(asked)[0][0]
        made = pool.create_trajectory(NewTrajectory()).created_at
        after = reader.execute(asked)[0][0]
    pool.close()
    # The clock's error is the time that an answer takes.
    assert before - 1 < made < after + 1


def test_an_outage_is_told_once(monkeypatch):
    """However many attempts it takes, also where connections are made and lost at once."""
    monkeypatch.setattr(listener, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(listener, "_LONGEST_PAUSE", 0.001)
    attempts, said = queue.Queue(), []
    # Whatever other tests made of the logging of this process.
    monkeypatch.setattr(listener._log, "warning", lambda text, *values: said.append(text % values))

    def connect():
        attempts.put(True)
        raise psycopg.OperationalError("nobody is there")

    ears = listener.Listener(connect, "channel")
    ears.add(lambda: None)
    for _ in range(5):
        assert attempts.get(timeout=SECONDS)
    ears.close()
    assert said == ["listening to the pool is interrupted: nobody is there"]
