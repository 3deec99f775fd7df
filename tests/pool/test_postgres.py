"""Opening pools on PostgreSQL: URLs, schemas, and what cannot be opened."""

import logging

import psycopg
import pytest
from sqlalchemy import text

from agentworld.errors import ConfigError, PoolError
from agentworld.pool import open_store
from agentworld.pool.postgres import PostgresPool
from agentworld.pool.postgres.address import read_address
from agentworld.pool.sql.statements import compiled
from agentworld.records import NewTrajectory

from .samples import ids, step


@pytest.fixture
def database(postgres):
    """The URL of an empty database."""
    url = postgres.create_database("empty")
    yield url
    postgres.drop_database("empty")


def test_the_url_is_read_and_shown_without_secrets():
    address = read_address(
        "postgresql://ann:p%40ss%2Fword@db.local:5433/pools?sslmode=require&sslpassword=hidden&schema=team&prepare_threshold=none"
    )
    assert address.url == ("postgresql://ann@db.local:5433/pools?prepare_threshold=none&schema=team&sslmode=require")
    given = address.parameters
    assert (given["host"], given["port"], given["dbname"]) == ("db.local", 5433, "pools")
    assert (given["user"], given["password"], given["sslmode"]) == ("ann", "p@ss/word", "require")
    assert (given["sslpassword"], given["connect_timeout"]) == ("hidden", "10")
    assert "schema" not in given
    assert (address.schema, address.prepare_threshold, address.database) == ("team", None, "pools")


def test_several_servers_and_other_spellings_of_the_scheme():
    address = read_address("postgres://u@/d?host=a:1&host=b:2&target_session_attrs=read-write&connect_timeout=3")
    assert (address.parameters["host"], address.parameters["port"]) == ("a,b", "1,2")
    assert (address.parameters["target_session_attrs"], address.parameters["connect_timeout"]) == ("read-write", "3")
    assert read_address("postgresql+psycopg://u@h/d").url == "postgresql://u@h/d"
    assert read_address("postgresql://u@h").database == "u"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:secret@h:port/d",
        "postgresql://u:p@secret@h/d",
        "postgresql://u:p@secret/x@h/d",
        "postgresql://u:secret@h/d?schema=a&schema=b",
        "postgresql://u:secret@h/d?schema=a-b",
        "postgresql://u:secret@h/d?schema=pg_mine",
        "postgresql://u:secret@h/d?prepare_threshold=often",
        "postgresql://u:secret@h/d?no_such_option=1",
    ],
)
def test_urls_that_cannot_be_read_are_refused_without_showing_secrets(url):
    with pytest.raises(ConfigError) as caught:
        open_store(url)
    assert caught.value.hint
    assert "secret" not in caught.value.one_line()


def test_who_is_not_let_in_hears_why(postgres, database, caplog):
    name = database.rpartition("/")[2]
    wrong = database.replace(postgres.password, "not-the-secret")
    for url, says, hint in (
        (wrong, "does not let this user in", "password"),
        (
            database.replace("postgres:", "nobody_here:", 1).replace("postgresql:", "postgresql:"),
            "does not let",
            "user",
        ),
        (database.replace(name, "missing"), "no database 'missing'", "createdb missing"),
        (f"postgresql://u:not-the-secret@127.0.0.1:1/{name}", "cannot be reached", "runs there"),
    ):
        with caplog.at_level(logging.DEBUG), pytest.raises(PoolError, match=says) as caught:
            open_store(url)
        assert hint in caught.value.hint
        said = caught.value.one_line() + caplog.text
        assert postgres.password not in said
        assert "not-the-secret" not in said


def test_a_user_without_rights_hears_what_is_missing(postgres, database):
    postgres.execute("CREATE ROLE reader LOGIN PASSWORD 'let-me'", "empty")
    try:
        url = database.replace(f"postgres:{postgres.password}", "reader:let-me")
        with pytest.raises(PoolError, match="does not allow") as caught:
            open_store(url)
        assert "CREATE" in caught.value.hint
    finally:
        postgres.execute("DROP ROLE reader", "empty")


def test_a_database_that_cannot_hold_every_text_is_refused(postgres):
    url = postgres.create_database("latin", options="ENCODING 'LATIN1'")
    with pytest.raises(PoolError, match="LATIN1") as caught:
        open_store(url)
    assert "createdb -E UTF8 -T template0 latin" in caught.value.hint
    postgres.drop_database("latin")


def test_a_server_that_is_too_old_is_refused(database, monkeypatch):
    monkeypatch.setattr(psycopg.ConnectionInfo, "server_version", 130_012)
    with pytest.raises(PoolError, match="PostgreSQL 13") as caught:
        open_store(database)
    assert "14 or newer" in caught.value.hint


def test_tables_of_another_program_are_left_alone(postgres, database):
    postgres.execute("CREATE TABLE mine (x int)", "empty")
    with pytest.raises(PoolError, match="no pool") as caught:
        open_store(database)
    assert "schema=" in caught.value.hint
    pool = open_store(f"{database}?schema=pool")
    pool.append_steps([step("t", step_id="a")])
    pool.close()
    assert postgres.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'", "empty") == [(1,)]
    assert postgres.execute("SELECT step_id FROM pool.steps", "empty") == [("a",)]


def test_a_pool_of_a_newer_version(postgres, database):
    open_store(database).close()
    postgres.execute("UPDATE alembic_version SET version_num = '9999'", "empty")
    with pytest.raises(PoolError, match="9999") as caught:
        open_store(database)
    assert "upgrade" in caught.value.hint


def test_schemas_of_one_database_are_pools_of_their_own(database):
    one, two = open_store(f"{database}?schema=one"), open_store(f"{database}?schema=two")
    assert one.url.endswith("?schema=one")
    for pool in (one, two):
        pool.create_trajectory(NewTrajectory(trajectory_id="t"))
    one.append_steps([step("t", step_id="a")])
    # One's write lock is not two's.
    held = one._writer.submit(lambda txn: two.append_steps([step("t", step_id="b")]))
    assert held.result(100)[0].outcome == "stored"
    assert (ids(one.list_steps()), ids(two.list_steps())) == (["a"], ["b"])
    one.close()
    two.close()


def test_a_pool_may_be_used_without_prepared_statements(database):
    pool = PostgresPool(f"{database}?prepare_threshold=none")
    for number in range(5):
        pool.append_steps([step("t", step_id=f"s{number}")])
    assert len(pool.list_steps().items) == 5
    with pool._database.reading() as reader:
        assert reader.execute(compiled(text("SELECT count(*) FROM pg_prepared_statements")))[0][0] == 0
    pool.close()
