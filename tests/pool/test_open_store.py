import importlib.util

import pytest

from agentworld.errors import ConfigError
from agentworld.pool import Pool, open_store, shown_url
from agentworld.records import NewTrajectory


@pytest.mark.parametrize(
    "url",
    ["mysql://host/db", "pool.db", "sqlite://", "sqlite:///", "sqlite://pool.db", "sqlite:///missing/p.db", ""],
)
def test_urls_that_name_no_pool_are_refused(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        open_store(url)
    assert caught.value.hint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite:///pool.db?schema=a", "unknown option 'schema'"),
        ("sqlite:///pool.db?medai=s3://key:secret@bucket/x", "'sqlite:///pool.db' has an unknown option 'medai'"),
        ("sqlite:///pool.db?medea=file:///m", "Did you mean media?"),
        ("sqlite:///pool.db?media=file:///m&mode=ro", "unknown option 'mode'"),
        ("sqlite:///:memory:", "A pool in memory is memory://"),
        ("http://127.0.0.1:8400", "agentworld.connect(URL)"),
    ],
)
def test_a_url_that_is_nearly_one_says_what_was_meant(url, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        open_store(url)
    assert said in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_relative_and_absolute_paths_are_the_same_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    relative = open_store("sqlite:///pool.db")
    assert isinstance(relative, Pool)
    relative.create_trajectory(NewTrajectory(trajectory_id="t"))
    assert relative.url == f"sqlite:///{tmp_path}/pool.db"
    absolute = open_store(f"sqlite:///{tmp_path}/pool.db")
    assert absolute.get_trajectory("t").trajectory_id == "t"
    relative.close()
    absolute.close()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:secret@h/d", "postgresql://ann@h/d"),
        ("postgresql://ann:se@cret@h:1/d?sslmode=require", "postgresql://ann@h:1/d?sslmode=require"),
        (
            "postgres://h/d?user=a&password=secret&sslpassword=secret",
            "postgres://h/d?user=a&password=***&sslpassword=***",
        ),
        ("postgresq://ann:secret@h/d", "postgresq://ann@h/d"),
        ("postgresql://ann%40corp:se%40cret@h/d", "postgresql://ann%40corp@h/d"),
        ("postgresql://ann:se/c?ret@h/d", "postgresql://ann@h/d"),
        ("postgresql://ann:se@cr/et@h:1/d", "postgresql://ann@h:1/d"),
        ("postgresql:ann:secret@h/d", "***@h/d"),
        (
            "postgresql://h/d?PassWord=s&pass%77ord=se%26cret;x&passfile=/f",
            "postgresql://h/d?PassWord=***&pass%77ord=***&passfile=/f",
        ),
        ("postgresql://h1:1,h2:2/d?user=a@b", "postgresql://h1:1,h2:2/d?user=a@b"),
        ("postgresql://[::1]:5432/d?user=a@b", "postgresql://[::1]:5432/d?user=a@b"),
        ("sqlite:////a/b.db?media=s3%3A%2F%2Fkey%3Asecret%40b%2Fx", "sqlite:////a/b.db?media=s3://b/x"),
        ("sqlite:////a/b@c.db?media=s3://x/y", "sqlite:////a/b@c.db?media=s3://x/y"),
        ("memory://", "memory://"),
    ],
)
def test_urls_are_shown_without_secrets(url, shown):
    assert shown_url(url) == shown


def test_a_postgresql_pool_without_its_driver_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="driver") as caught:
        open_store("postgresql://host/db")
    assert "agentworld[postgres]" in caught.value.hint


def test_each_memory_pool_is_its_own():
    first, second = open_store("memory://"), open_store("memory://")
    first.create_trajectory(NewTrajectory())
    assert second.list_trajectories().items == []
    assert isinstance(first, Pool)
