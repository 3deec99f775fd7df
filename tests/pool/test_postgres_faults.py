"""PostgreSQL that goes away, is full, or may only be read: clear errors, nothing half written, and it goes on after."""

import pytest

from agentworld.errors import PoolError, PoolFullError
from agentworld.pool import open_store
from agentworld.pool.postgres import session
from agentworld.pool.sql.group_time import GroupTime
from agentworld.records import BatchSpec
from tests.postgres_server import FAST, PostgresServer
from tests.power.survivors import listed

from .samples import finished, ids, step, writer_held


@pytest.fixture(scope="module")
def server():
    """A server that may be killed, which the one that all tests share is not."""
    with PostgresServer(FAST) as server:
        yield server


@pytest.fixture
def url(server):
    url = server.fresh_pool_url()
    yield url
    server.drop_database(url.rpartition("/")[2])


@pytest.fixture
def pool(url):
    pool = open_store(url)
    yield pool
    pool.close()


def disconnect(server, url):
    """End all connections to the pool's database, as an administrator or a network does."""
    name = url.rpartition("/")[2]
    server.execute(f"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '{name}'")


def test_a_transaction_whose_connection_is_lost_is_told_to_all_in_it_and_leaves_nothing(server, url, pool, monkeypatch):
    monkeypatch.setattr(GroupTime, "after_waiting", lambda *_: 60.0)  # So that all of them are in one transaction.
    pool.append_steps([step("t", step_id="before")])
    with writer_held(pool):
        first = pool.submit_steps([step("t", step_id="a", prompt_ids=list(range(500)))])
        cut = pool._writer.submit(lambda txn: disconnect(server, url))
        last = pool.submit_steps([step("t", step_id="b", prompt_ids=list(range(500)))])
    for future in (first, cut, last):
        with pytest.raises(PoolError) as caught:
            future.result(60)
        assert caught.value.hint
    assert (ids(pool.list_steps()), pool.stats().steps) == (["before"], 1)
    # What the lost transaction had stored in this process's memory is stored again, not taken to be there.
    again = [step("t", step_id=name, prompt_ids=list(range(500))) for name in "ab"]
    assert [result.outcome for result in pool.append_steps(again)] == ["stored", "stored"]
    assert pool.get_step("b").prompt_ids == list(range(500))


def test_connections_that_were_lost_while_idle_are_made_anew(server, url, pool):
    finished(pool, "t", reward=1.0)
    disconnect(server, url)
    assert pool.get_trajectory("t").reward == 1.0
    disconnect(server, url)
    assert pool.append_steps([step("u", step_id="a")])[0].outcome == "stored"
    batch = pool.lease(BatchSpec(method="reinforce", size=1), "c")
    disconnect(server, url)
    pool.ack(batch.batch_id, batch.epoch)
    assert pool.stats().batches == {"acked": 1}


def test_a_server_that_is_killed_is_named_and_the_pool_goes_on_once_it_is_back(server, url, pool, monkeypatch):
    monkeypatch.setattr(session, "RECONNECT_SECONDS", 0.2)
    pool.append_steps([step("t", step_id="a")])
    server.kill()
    try:
        for call in (lambda: pool.append_steps([step("t", step_id="b")]), pool.stats, pool.list_steps):
            with pytest.raises(PoolError) as caught:
                call()
            assert caught.value.hint
            assert server.password not in caught.value.one_line()
        with pytest.raises(PoolError) as caught:
            open_store(url)
        assert server.password not in caught.value.one_line()
    finally:
        server.start()
    assert pool.append_steps([step("t", step_id="b")])[0].outcome == "stored"
    assert ids(pool.list_steps()) == ["a", "b"]


def test_a_full_disk_is_a_clear_error_and_the_pool_goes_on_after(server, url, pool):
    """The server's own error for a full disk, raised where a step is written."""
    pool.append_steps([step("t", step_id="before")])
    name, stats = url.rpartition("/")[2], pool.stats()
    server.execute(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$",
        name,
    )
    server.execute("CREATE TRIGGER full_disk BEFORE INSERT ON steps FOR EACH ROW EXECUTE FUNCTION full_disk()", name)
    for sent in ([step("t", step_id="one")], [step("t", step_id=f"many{number}") for number in range(20)]):
        with pytest.raises(PoolFullError) as caught:
            pool.append_steps(sent)
        assert (caught.value.status, "Free space" in caught.value.hint) == (507, True)
    assert (pool.stats(), ids(pool.list_steps())) == (stats, ["before"])
    server.execute("DROP TRIGGER full_disk ON steps", name)
    assert pool.append_steps(sent)[0].outcome == "stored"
    assert len(listed(pool)) == 21


def test_a_user_who_may_only_read_reads(server, url):
    name = url.rpartition("/")[2]
    first = open_store(url)
    first.append_steps([step("t", step_id="a")])
    first.close()
    server.execute("CREATE ROLE reader LOGIN PASSWORD 'secret'")
    server.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader", name)
    pool = open_store(f"postgresql://reader:secret@127.0.0.1:{server.port}/{name}")
    assert ids(pool.list_steps()) == ["a"]
    with pytest.raises(PoolError, match="does not allow that") as caught:
        pool.append_steps([step("t", step_id="b")])
    assert "secret" not in caught.value.one_line()
    assert pool.stats().steps == 1
    pool.close()
