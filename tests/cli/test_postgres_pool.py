"""Commands on a pool on PostgreSQL: as on a file, and no secret of its URL is printed."""

import json

import pytest

from agentworld.client.factory import Factory
from agentworld.factory import open_pool

from .test_serve import serve


@pytest.fixture
def url(postgres):
    yield postgres.create_database("commands")
    postgres.drop_database("commands")


@pytest.fixture
def secret(postgres):
    return postgres.password


def test_reading_commands_make_no_pool(refused, cli, postgres, url, secret):
    for command in (("trajectories", "list"), ("pool", "stats"), ("pool", "migrate")):
        line = refused(*command, "--pool", url)
        assert "no pool" in line
        assert secret not in line
    _, out, _ = cli("doctor", "--pool", url)
    assert "a pool will be made in postgresql://postgres@127.0.0.1" in " ".join(out.split())
    assert secret not in out
    assert postgres.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'", "commands") == [(0,)]


def test_commands_read_and_write(cli, url, secret):
    with open_pool(url) as pool, pool.trajectory(trajectory_id="t") as trajectory:
        trajectory.step(step_id="s", prompt_ids=[1], response_ids=[2])
    code, out, err = cli("trajectories", "list", "--json", "--pool", url)
    assert (code, json.loads(out)["trajectory_id"]) == (0, "t"), err
    code, out, _ = cli("reward", "set", "t", "0.5", "--pool", url)
    assert (code, secret in out) == (0, False)
    code, out, _ = cli("pool", "stats", "--json", "--pool", url)
    assert (code, json.loads(out)["steps"]) == (0, 1)
    code, out, _ = cli("pool", "migrate", "--pool", url)
    assert out.startswith("postgresql://postgres@127.0.0.1:")
    _, out, _ = cli("doctor", "--pool", url)
    assert "holds 1 trajectories, 1 steps" in " ".join(out.split())


def test_an_older_schema_is_left_to_the_migration(refused, cli, postgres, url, secret):
    open_pool(url).close()
    postgres.execute("UPDATE alembic_version SET version_num = '0001'", "commands")
    line = refused("trajectories", "list", "--pool", url)
    assert "agentworld pool migrate --pool postgresql://postgres@" in line
    _, out, _ = cli("doctor", "--pool", url)
    assert "the schema 0001 of an older version" in " ".join(out.split())
    assert secret not in line + out


def test_a_wrong_scheme_shows_no_secret_either(refused, url, secret):
    line = refused("pool", "stats", "--pool", url.replace("postgresql:", "postgresq:"))
    assert "no pool at" in line
    assert secret not in line


def test_serve_with_two_workers(url, secret):
    with serve("--pool", url, "--workers", "2") as server:
        server.ready()
        with Factory(server.url) as factory:
            with factory.trajectory() as trajectory:
                trajectory.step(prompt_ids=[1], response_ids=[2])
            assert factory.stats().steps == 1
    assert "pool postgresql://postgres@127.0.0.1" in server.text
    assert secret not in server.text
