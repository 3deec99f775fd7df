"""After a deletion and a purge no file of the pool holds what was deleted, in whatever form it was stored."""

import contextlib
import sqlite3

import psycopg
import pytest

from agentworld.errors import PoolError
from agentworld.pool import open_store
from agentworld.pool.schema import metadata
from agentworld.pool.sql.dataset_records import row_from
from agentworld.records import Annotation, BatchSpec, Exchange, Feedback, MediaPart, Message, NewTrajectory, Reward
from tests.pool.contract.test_datasets import manifest, row
from tests.pool.samples import finished, step
from tests.postgres_server import FAST, PostgresServer

# Of no use to a compressor, so that compressed forms hold its bytes in a row too.
MARKER = "Qx7ZkV9mWp2LtR4cYb8N"
IDS = [70_001, 131_313, 99_099, 150_007, 111_222, 88_888, 123_321, 77_707]
PACKED = b"".join(number.to_bytes(3, "little") for number in IDS)
WIDE = b"".join(number.to_bytes(4, "little") for number in IDS)


def fill(pool):
    """Trajectories `gone` and `kept` with content in every place; the marker is in all of the first."""
    for name, marker in (("gone", MARKER), ("kept", "something else")):
        ids = [*IDS, *range(70_000, 70_300)] if name == "gone" else list(range(70_000, 70_600))
        medium = pool.put_media(b"blob " + marker.encode() * 3, "image/png")
        said = [
            Message(role="system", content="You are the same for everybody."),
            Message(role="user", content=(MediaPart(medium, "image/png"),)),
            Message(role="user", content=f"{marker} says user", reasoning=marker),
        ]
        new = NewTrajectory(
            trajectory_id=name,
            user=name,
            metadata={"m": marker},
            task={"t": marker},
            group_id=f"g-{name}",
            agent=marker,
        )
        pool.create_trajectory(new)
        one = step(
            name,
            prompt_ids=ids,
            response_ids=IDS if name == "gone" else [1],
            response_logprobs=None,
            prompt_messages=said,
            response_message=Message(role="assistant", content=f"answer {marker}"),
            tools=[{"type": "function", "function": {"name": marker}}],
            metadata={"m": marker},
            labels={"l": marker},
            finish_reason=marker,
            model=marker,
        )
        pool.append_steps([one, step(name, step_id=f"{name} is no id", metadata={"m": marker})])
        exchange = Exchange(
            exchange_id=f"x-{name}", trajectory_id=name, dialect="chat", model=marker, requested_model=marker,
            messages=said, error={"message": marker},
        )  # fmt: skip
        pool.append_exchange(exchange)
        rewards = [Reward(value=1.0, step_id=one.step_id, name=marker, source=marker, details={"d": marker})]
        rewards.append(Reward(value=0.5, trajectory_id=name, name=marker, source=marker))
        rewards.append(Reward(value=0.5, step_id=f"never-{name}", trajectory_id=name, details={"d": marker}))
        pool.add_rewards(rewards)
        feedback = [
            Feedback(kind="comment", trajectory_id=name, comment=marker, source=marker),
            Feedback(kind="label", step_id=one.step_id, name="quality", value=marker),
            Feedback(kind="correction", step_id=one.step_id, value=marker),
            Feedback(kind="comparison", trajectory_id=name, other_id="nobody", comment=marker),
        ]
        pool.add_feedback(feedback)
        values = list(MARKER.encode()) if name == "gone" else [0] * 20
        pool.add_annotations([Annotation(name="values", values=values, dtype="uint8", trajectory_id=name)])
        pool.complete_trajectory(name, "finished", 1.0)
    freeze_both(pool)
    batch = pool.lease(BatchSpec(method="sft", size=2), "policy")
    pool.release(batch.batch_id, batch.epoch)
    assert pool.lease(BatchSpec(method="rloo", groups=2, rollouts=1), "policy") is not None


def freeze_both(pool):
    """A dataset version with both trajectories, and one that is not frozen; what is said of `gone` is in its rows."""
    said = Feedback(kind="comparison", trajectory_id="kept", other_id="gone", comment=MARKER, value=1, feedback_id="f")
    about = Feedback(kind="comment", trajectory_id="gone", comment=MARKER, source=MARKER, feedback_id="g")
    rows = [
        row(0, "gone", [], labels={"l": MARKER}, rewards={MARKER: 1.0}, task_key=MARKER, feedback=[about]),
        row(1, "kept", [], feedback=[said]),
    ]
    building = pool.begin_dataset("both")
    pool.put_dataset_rows(building, rows)
    pool.freeze_dataset(building, manifest("both", 1, 2))
    pool.put_dataset_rows(pool.begin_dataset("both"), rows)


def holding(paths, needles):
    """The files that hold any of the needles."""
    found = set()
    for path in paths:
        with contextlib.suppress(FileNotFoundError):  # The server removes files as it likes.
            data = path.read_bytes()
            found |= {path.name for needle in needles if needle in data}
    return found


def stored_forms(rows_of):
    """What the rows of `gone` alone hold, as they are stored: bytes and texts of each table, without what both have."""
    texts = {}
    for table in metadata.sorted_tables:
        for column in table.columns:
            for value in rows_of(table.name, column.name):
                raw = bytes(value) if isinstance(value, (bytes, memoryview)) else str(value).encode()
                if len(raw) >= 12:
                    texts.setdefault(raw, set()).add(table.name)
    return texts


NEEDLES = [MARKER.encode(), PACKED, WIDE]


@pytest.fixture(params=["table", "folder"])
def sqlite_store(request, tmp_path):
    option = f"?media=file://{tmp_path}/pool-media" if request.param == "folder" else ""
    store = open_store(f"sqlite:///{tmp_path}/pool.db{option}")
    yield store
    store.close()


def test_no_file_of_a_sqlite_pool_holds_it(sqlite_store, tmp_path):
    pool = sqlite_store

    def files():
        return [path for path in tmp_path.rglob("pool*") if path.is_file()] + list(
            (tmp_path / "pool-media").rglob("*/*/*")
        )

    def rows_of(table, column):
        with contextlib.closing(sqlite3.connect(tmp_path / "pool.db")) as connection:
            return [
                row[0] for row in connection.execute(f'SELECT "{column}" FROM "{table}" WHERE "{column}" IS NOT NULL')
            ]

    fill(pool)
    before = stored_forms(rows_of)
    assert holding(files(), NEEDLES), "the scan finds what is there"
    pool.delete_trajectories(["gone"], "asked")
    pool.purge()
    after = stored_forms(rows_of)
    gone = [raw for raw in before if raw not in after]
    assert len(gone) > 20
    kept_as_is = {b"gone", b"x-gone"}
    assert MARKER not in str([row_from(raw) for raw in rows_of("dataset_rows", "record")])
    assert holding(files(), [*NEEDLES, *(raw for raw in gone if raw not in kept_as_is)]) == set()
    assert pool.check() == []
    assert pool.get_trajectory("kept").metadata == {"m": "something else"}


def test_a_purge_says_what_keeps_it_from_the_log(tmp_path):
    pool = open_store(f"sqlite:///{tmp_path}/pool.db")
    finished(pool, "a", reward=1.0)
    pool.delete_trajectories(["a"])
    reader = sqlite3.connect(tmp_path / "pool.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM steps").fetchone()
    try:
        from agentworld.pool.sqlite import database

        busy, database._BUSY_MILLISECONDS = database._BUSY_MILLISECONDS, 10
        with pytest.raises(PoolError, match="still holds what was deleted"):
            pool.purge()
    finally:
        database._BUSY_MILLISECONDS = busy
        reader.close()
    pool.purge()
    pool.close()


@pytest.mark.slow
def test_no_file_of_a_postgres_server_holds_it():
    """With the settings that docs/pool.md asks for: log segments are removed, not kept for use again."""
    with PostgresServer({**FAST, "wal_recycle": "off", "min_wal_size": "32MB", "wal_keep_size": "0"}) as server:
        pool = open_store(server.create_database("purged"))

        def files():
            server_files = [path for name in ("base", "pg_wal") for path in (server.data / name).rglob("*")]
            return [path for path in server_files if path.is_file()]

        try:
            fill(pool)
            with psycopg.connect(**pool._database.address.parameters, autocommit=True) as connection:
                connection.execute("ANALYZE")
            server.execute("CHECKPOINT")
            assert holding(files(), NEEDLES), "the scan finds what is there"
            pool.delete_trajectories(["gone"], "asked")
            pool.purge()
            assert holding(files(), NEEDLES) == set()
            assert pool.check() == []
        finally:
            pool.close()


def test_the_planners_statistics_hold_no_content(postgres_pool):
    fill(postgres_pool)
    with psycopg.connect(**postgres_pool._database.address.parameters, autocommit=True) as connection:
        connection.execute("ANALYZE")
        sampled = connection.execute(
            "SELECT tablename, attname, concat(most_common_vals::text, histogram_bounds::text) FROM pg_stats "
            "WHERE schemaname = 'public'"
        ).fetchall()
    assert ("trajectories", "status") in {row[:2] for row in sampled}
    assert [row for row in sampled if MARKER in row[2]] == []


def test_a_transaction_that_does_not_end_is_named_and_stalls_nobody(postgres_pool, monkeypatch):
    from agentworld.pool.postgres import keeping

    monkeypatch.setattr(keeping, "LOCK_SECONDS", 0.05)
    monkeypatch.setattr(keeping, "LOCK_TURNS", 2)
    finished(postgres_pool, "a", reward=1.0)
    finished(postgres_pool, "b", reward=1.0)
    postgres_pool.delete_trajectories(["a"])
    with psycopg.connect(**postgres_pool._database.address.parameters) as idle:
        idle.execute("SELECT count(*) FROM steps").fetchone()
        with pytest.raises(PoolError, match="steps cannot be rewritten") as error:
            postgres_pool.purge()
        assert "pg_stat_activity" in error.value.hint
        assert postgres_pool.append_steps([step("c")])[0].outcome == "stored"
    postgres_pool.purge()
    assert postgres_pool.check() == []


def test_a_user_who_may_ask_for_no_checkpoint_is_told_so(postgres):
    name = "purge_by_an_ordinary_user"
    url = postgres.create_database(name)
    postgres.execute("CREATE ROLE ordinary LOGIN PASSWORD 'secret'")
    postgres.execute(f'ALTER DATABASE "{name}" OWNER TO ordinary')
    pool = open_store(url.replace(f"postgres:{postgres.password}@", "ordinary:secret@"))
    try:
        finished(pool, "a", reward=1.0)
        pool.delete_trajectories(["a"])
        with pytest.raises(PoolError, match="may not ask for a checkpoint"):
            pool.purge()
        assert pool.check() == []
    finally:
        pool.close()
        postgres.drop_database(name)
        with psycopg.connect(postgres.url(), autocommit=True) as connection:
            connection.execute("DROP ROLE ordinary")
