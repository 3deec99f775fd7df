"""A pool of an earlier version, as that version wrote it, holds the same for this one and goes on from there.

`schema_NNNN.sql` is a dump of such a pool, `schema_NNNN.json` what that version read from it.
"""

import json
import shutil
import sqlite3
from pathlib import Path

import msgspec
import psycopg
import pytest

from agentworld.pool.migrations import upgrade_schema
from agentworld.pool.postgres import PostgresPool
from agentworld.pool.schema import SCHEMA_VERSION
from agentworld.pool.sqlite import SqlitePool
from agentworld.records import BatchSpec

from .samples import step

HERE = Path(__file__).parent
OLD = sorted(path.stem for path in HERE.glob("schema_*.sql"))
NOW = 1_700_001_000.0


def restore(name, path):
    """The dump as a pool file."""
    connection = sqlite3.connect(path)
    connection.executescript((HERE / f"{name}.sql").read_text())
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()


def restore_on_postgres(name, url, path):
    """The dump as tables of that schema on PostgreSQL."""
    restore(name, path)
    upgrade_schema(lambda: psycopg.connect(url), "public", 0, lambda raw: True, version=name.removeprefix("schema_"))
    with sqlite3.connect(path) as source, psycopg.connect(url) as target:
        target.execute("SET session_replication_role = replica")  # So that the order of the tables does not matter.
        tables = [row[0] for row in source.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            if table in ("alembic_version", "sqlite_sequence"):
                continue
            rows = source.execute(f"SELECT * FROM {table}")
            names = ", ".join(column[0] for column in rows.description)
            slots = ", ".join(["%s"] * len(rows.description))
            target.execute(f"DELETE FROM {table}")  # Migrations fill some.
            target.cursor().executemany(f"INSERT INTO {table} ({names}) VALUES ({slots})", rows.fetchall())


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def engine(request):
    return request.param


@pytest.fixture(scope="module", params=OLD)
def upgraded(request, engine, tmp_path_factory):
    """The schema's name, and a pool of it that this version has opened: a file, or a URL."""
    path = tmp_path_factory.mktemp("old") / "pool.db"
    if engine == "sqlite":
        restore(request.param, path)
        SqlitePool(path, clock=lambda: NOW).close()
        yield request.param, path
        return
    server = request.getfixturevalue("postgres")
    url = server.create_database("upgraded")
    restore_on_postgres(request.param, url, path)
    PostgresPool(url, clock=lambda: NOW).close()
    yield request.param, url
    server.drop_database("upgraded")


@pytest.fixture
def read(engine, upgraded):
    """As `old`, for tests that write nothing."""
    name, place = upgraded
    pool = (SqlitePool if engine == "sqlite" else PostgresPool)(place, clock=lambda: NOW)
    yield pool, json.loads((HERE / f"{name}.json").read_text())
    pool.close()


@pytest.fixture
def old(request, engine, upgraded, tmp_path):
    """A pool that was made by an earlier version, opened by this one, and what the earlier one read."""
    name, place = upgraded
    if engine == "sqlite":
        pool = SqlitePool(shutil.copy(place, tmp_path / "pool.db"), clock=lambda: NOW)
    else:
        server = request.getfixturevalue("postgres")
        pool = PostgresPool(server.create_database("old", template="upgraded"), clock=lambda: NOW)
    yield pool, json.loads((HERE / f"{name}.json").read_text())
    pool.close()
    if engine == "postgres":
        server.drop_database("old")


def differences(before, now):
    """What of the earlier record is not in this one's; fields that came since are not looked at."""
    plain = msgspec.json.decode(msgspec.json.encode(now))
    return {name: (value, plain.get(name)) for name, value in before.items() if value and plain.get(name) != value}


def test_every_earlier_version_has_a_pool_here():
    assert [f"schema_{number:04}" for number in range(1, int(SCHEMA_VERSION))] == OLD


def test_records_read_back_as_before(read):
    pool, before = read
    steps = pool.list_steps(include=("tokens", "messages", "logprobs")).items
    trajectories, events = pool.list_trajectories().items, pool.events()
    for name, found in (("steps", steps), ("trajectories", trajectories), ("dead_letters", pool.dead_letters())):
        assert len(found) == len(before[name]) > 0
        assert [differences(*pair) for pair in zip(before[name], found, strict=True)] == [{}] * len(found), name
    known = before["events"]
    assert [differences(*pair) for pair in zip(known, events[: len(known)], strict=True)] == [{}] * len(known)
    assert differences(before["stats"], pool.stats()).keys() <= {"last_event"}


def test_dataset_versions_are_there(read):
    pool, before = read
    frozen = [one.data["version"] for one in pool.events() if one.kind == "dataset.frozen"]
    assert [one.version for one in pool.list_datasets().items] == frozen
    steps = {one["step_id"]: one["trajectory_id"] for one in before["steps"]}
    for version in frozen:
        for row in pool.dataset_rows(version):
            assert {steps[one.step_id] for one in row.steps} == {row.trajectory_id}


def test_leases_go_on(old):
    pool, before = old
    batch_id, epoch, acked = before["acked"]
    pool.ack(batch_id, epoch)  # Again is no error.
    leased_id, leased_epoch, leased = before["leased"]
    spec = BatchSpec(method="reinforce", size=10, min_size=1)
    batch = pool.lease(spec, "trainer")
    assert {item.key for item in batch.items} & {acked, leased} == set()
    assert batch.epoch > leased_epoch
    pool.release(leased_id, leased_epoch)
    assert [item.key for item in pool.lease(spec, "trainer").items] == [leased]
    # A group of four, of which three had ended.
    pool.complete_trajectory("rollout-3", "failed")
    group = pool.lease(BatchSpec(method="grpo", groups=1, rollouts=2), "groups")
    assert [item.key for item in group.items] == ["group-1"]
    assert [rollout.trajectory.reward for rollout in group.items[0].trajectories][:3] == [1.0, 0.0, 0.0]


def test_writing_goes_on(old):
    pool, before = old
    last = before["events"][-1]["sequence"]
    first = before["steps"][0]
    sent = step("alone", step_id="new", prompt_ids=first["prompt_ids"])
    assert pool.append_steps([sent])[0].outcome == "stored"
    assert pool.get_step("new").prompt_ids == first["prompt_ids"]
    assert [event.sequence for event in pool.events(after=last)] == list(range(last + 1, pool.stats().last_event + 1))
    assert pool.stats().steps == len(before["steps"]) + 1


def test_events_are_told_by_channel_and_trajectory(read):
    pool = read[0]
    whose = {one.trajectory_id: one.channel for one in pool.list_trajectories(limit=1000).items}
    whose |= {one.group_id: one.channel for one in pool.list_groups(limit=1000).items}
    whose |= {one.version: one.selection.channel for one in pool.list_datasets().items}
    events = pool.events()

    def about(event):
        return whose.get(event.trajectory_id or event.data.get("group_id") or event.data.get("version"))

    assert {about(event) for event in events} > {None}
    for channel in {*whose.values()}:
        of_all = ("policy.set", "gateway.paused", "gateway.resumed")
        assert pool.events(channel=channel) == [one for one in events if one.kind in of_all or about(one) == channel]
