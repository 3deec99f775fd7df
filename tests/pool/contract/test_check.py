"""A check names each kind of damage; the damage is done behind the pool's back."""

import shutil
import sqlite3

import psycopg
import pytest

from agentworld.pool.memory import MemoryPool
from agentworld.pool.postgres import PostgresPool
from agentworld.pool.schema import metadata
from agentworld.pool.sqlite import SqlitePool
from agentworld.records import Annotation, BatchSpec, CurationPolicy, Feedback, MediaPart, Message
from tests.pool.samples import finished, group

IDS = list(range(300))
AT = 1_000_000.0
SHOWN = Message(role="user", content=(MediaPart("0" * 32, "image/png"),))


def fill(pool):
    """Make a pool that is sound and has a row of every kind."""
    content = {
        "prompt_ids": IDS,
        "response_ids": IDS,
        "response_logprobs": None,
        "tools": [{"name": "t"}],
        "vocabulary": "v",
    }
    finished(pool, "a", steps=3, reward=1.0, step_changes=content)
    finished(pool, "b", reward=1.0, step_changes={"prompt_messages": [SHOWN, SHOWN]})
    group(pool, "g", [0.0, 1.0])
    pool.put_media(b"picture", "image/png")
    pool.add_feedback([Feedback(kind="label", name="q", value=1, trajectory_id="b")])
    pool.add_annotations([Annotation(name="v", values=[1.0, 2.0], trajectory_id="b")])
    pool.pin("dataset", "d", ["a"])
    assert pool.lease(BatchSpec(method="sft", size=1), "policy") is not None
    assert pool.check() == []
    pool.close()


@pytest.fixture(scope="module")
def filled_file(tmp_path_factory):
    """A filled pool's file, to be copied."""
    path = tmp_path_factory.mktemp("filled") / "pool.db"
    fill(SqlitePool(path, clock=lambda: AT))
    return path


@pytest.fixture(scope="module")
def fill_postgres(postgres_wipe):
    """A function that puts a filled pool's rows into an empty one."""
    url, wipe = postgres_wipe
    wipe()
    fill(PostgresPool(url, clock=lambda: AT))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        tables = [table.name for table in metadata.sorted_tables]
        for table in tables:
            connection.execute(f"CREATE TEMPORARY TABLE kept_{table} AS TABLE {table}")
        rows = "; ".join(f"INSERT INTO {table} SELECT * FROM kept_{table}" for table in tables)
        yield lambda: connection.execute(f"DELETE FROM counters; {rows}")


@pytest.fixture(params=["sqlite", "postgres"])
def filled(request, tmp_path):
    """A filled pool of the test's own."""
    if request.param == "sqlite":
        pool = SqlitePool(shutil.copy(request.getfixturevalue("filled_file"), tmp_path / "pool.db"), clock=lambda: AT)
    else:
        fill_again, url = (request.getfixturevalue(name) for name in ("fill_postgres", "postgres_kept"))
        fill_again()
        pool = PostgresPool(url, clock=lambda: AT)
    yield pool
    pool.close()


def damage(pool, statement):
    """Run SQL as another program would, without the checks of foreign keys."""
    if hasattr(pool, "path"):
        connection = sqlite3.connect(pool.path)
        try:
            with connection:
                changed = connection.execute(statement).rowcount
        finally:
            connection.close()
    else:
        with psycopg.connect(**pool._database.address.parameters, autocommit=True) as connection:
            connection.execute("SET session_replication_role = replica")
            changed = connection.execute(statement).rowcount
    assert changed > 0


def found(pool):
    return {(problem.kind, problem.table) for problem in pool.check()}


LAST = "(SELECT max(pk) FROM {})"
FIRST = "(SELECT min(pk) FROM {})"


@pytest.mark.parametrize(
    ("statement", "kind", "table"),
    [
        # Content that is not what its digest says.
        (
            "UPDATE token_blocks SET ids = (SELECT ids FROM token_blocks WHERE pk = 1) WHERE pk = 2",
            "hash",
            "token_blocks",
        ),
        ("UPDATE token_blocks SET parent = NULL WHERE pk = 2", "hash", "token_blocks"),
        ("UPDATE message_nodes SET depth = 7 WHERE pk = 2", "hash", "message_nodes"),
        ("UPDATE message_nodes SET coding = 99 WHERE pk = 1", "hash", "message_nodes"),
        ("UPDATE message_nodes SET parent = NULL WHERE parent = 1", "hash", "message_nodes"),
        # Counts.
        ("UPDATE counters SET value = value + 1 WHERE name = 'steps'", "count", "counters"),
        ("UPDATE counters SET value = value - 1 WHERE name = 'blocks'", "count", "counters"),
        ("UPDATE trajectories SET step_count = 9 WHERE trajectory_id = 'a'", "count", "trajectories"),
        ("UPDATE trajectories SET usable_steps = 9 WHERE trajectory_id = 'a'", "count", "trajectories"),
        ("UPDATE trajectories SET lacks = 7 WHERE trajectory_id = 'b'", "count", "trajectories"),
        ("UPDATE trajectories SET sampled_tokens = 1 WHERE trajectory_id = 'a'", "count", "trajectories"),
        ("UPDATE trajectories SET last_step = NULL WHERE trajectory_id = 'a'", "count", "trajectories"),
        ("UPDATE groups SET members = 5", "count", "groups"),
        ("UPDATE groups SET served = 5", "count", "groups"),
        # References.
        ("UPDATE steps SET block = 999999 WHERE block IS NOT NULL", "reference", "steps"),
        ("UPDATE steps SET reply_node = 999999", "reference", "steps"),
        ("UPDATE steps SET tools = 999999 WHERE tools IS NOT NULL", "reference", "steps"),
        ("UPDATE steps SET trajectory = 999999 WHERE step_index = 2", "reference", "steps"),
        ("UPDATE trajectories SET group_id = 'nowhere' WHERE trajectory_id = 'a'", "reference", "trajectories"),
        ("UPDATE token_blocks SET parent = 999999 WHERE pk = 2", "reference", "token_blocks"),
        ("DELETE FROM message_nodes WHERE pk = 1", "reference", "message_nodes"),
        ("DELETE FROM batch_units", "reference", "deliveries"),
        ("UPDATE batches SET state = 'released'", "reference", "deliveries"),
        ("UPDATE deliveries SET state = 'available'", "reference", "batches"),
        # Sequences.
        ("DELETE FROM events WHERE pk = 3", "sequence", "events"),
        ("UPDATE events SET pk = 999999 WHERE pk = 3", "sequence", "events"),
        ("UPDATE steps SET step_index = 7 WHERE step_index = 2", "sequence", "trajectories"),
        ("UPDATE steps SET pk = 999999 WHERE step_index = 2", "sequence", "steps"),
        # What a step said.
        ("UPDATE steps SET tail = (SELECT tail FROM steps WHERE step_index = 1) WHERE step_index = 2", None, None),
        ("UPDATE steps SET prompt_length = prompt_length - 1 WHERE step_index = 2", "hash", "steps"),
        ("UPDATE steps SET prompt_node = reply_node WHERE step_index = 2", "hash", "steps"),
        (
            "UPDATE steps SET logprobs = (SELECT ids FROM token_blocks WHERE pk = 1) WHERE trajectory = 2",
            "hash",
            "steps",
        ),
        (
            "UPDATE steps SET block = (SELECT parent FROM token_blocks WHERE pk = 3) WHERE step_index = 2",
            "hash",
            "steps",
        ),
        # Sequences that consumers go by.
        ("UPDATE counters SET value = 1 WHERE name = 'pk.ready_seq'", "sequence", "trajectories"),
        ("UPDATE trajectories SET ready_seq = NULL WHERE trajectory_id = 'a'", "sequence", "trajectories"),
        ("UPDATE trajectories SET ready_seq = 999 WHERE trajectory_id = 'a'", "sequence", "trajectories"),
        ("UPDATE groups SET ready_seq = NULL", "sequence", "groups"),
        ("UPDATE positions SET ready_seq = 999", "sequence", "positions"),
        ("UPDATE counters SET value = 0 WHERE name = 'pk.steps'", "sequence", "steps"),
        ("DELETE FROM events WHERE pk = (SELECT max(pk) FROM events)", "sequence", "events"),
        # Words.
        ("UPDATE deliveries SET state = 'gone'", "reference", "deliveries"),
        ("UPDATE backlog SET unit = 'trajectories'", "reference", "backlog"),
        ("UPDATE positions SET unit = 'trajectories'", "reference", "positions"),
        # Signals.
        ("UPDATE rewards SET value = 7 WHERE target = 'trajectory'", "count", "trajectories"),
        ("UPDATE trajectories SET reward = 7 WHERE trajectory_id = 'a'", "count", "trajectories"),
        ("UPDATE trajectories SET labels = '{}' WHERE trajectory_id = 'b'", "count", "trajectories"),
        ("UPDATE steps SET rewards = '{\"reward\":2.0}' WHERE step_index = 2", "count", "steps"),
        ("UPDATE rewards SET target_id = 'nobody' WHERE pk = 1", "reference", "rewards"),
        ("UPDATE feedback SET target_id = 'nobody'", "reference", "feedback"),
        ("UPDATE annotations SET target_id = 'nobody'", "reference", "annotations"),
        ("UPDATE pins SET target_id = 'nobody'", "reference", "pins"),
        ("UPDATE annotations SET shape = '[7]'", "hash", "annotations"),
        ("UPDATE annotations SET dtype = 'text'", "hash", "annotations"),
        # JSON.
        ("UPDATE steps SET metadata = 'no' WHERE step_index = 2", "hash", "steps"),
        ("UPDATE trajectories SET task = '{' WHERE trajectory_id = 'a'", "hash", "trajectories"),
        ("UPDATE events SET data = '{' WHERE pk = 2", "hash", "events"),
        # Media.
        ("DELETE FROM media_uses", "reference", "media_uses"),
        ("UPDATE media SET size = 1", "media", "media"),
    ],
)
def test_each_kind_of_damage_is_named(filled, statement, kind, table):
    damage(filled, statement)
    if kind is None:
        assert found(filled) == set()  # The tails were equal.
        return
    assert (kind, table) in found(filled)


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("token_blocks", "ids"),
        ("message_nodes", "body"),
        ("tool_sets", "body"),
        ("media", "data"),
        ("steps", "tail"),
        ("steps", "logprobs"),
    ],
)
def test_one_flipped_bit_is_named(filled, table, column):
    where = f"pk = (SELECT max(pk) FROM {table} WHERE {column} IS NOT NULL AND length({column}) > 0)"
    if hasattr(filled, "path"):
        with sqlite3.connect(filled.path) as connection:
            data = bytearray(connection.execute(f"SELECT {column} FROM {table} WHERE {where}").fetchone()[0])
            data[len(data) // 2] ^= 4
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (bytes(data),))
        connection.close()
    else:
        damage(
            filled,
            f"UPDATE {table} SET {column} = set_byte({column}, length({column}) / 2, get_byte({column}, "
            f"length({column}) / 2) # 4) WHERE {where}",
        )
    assert ("media" if table == "media" else "hash", table) in found(filled)


def test_a_problem_says_where_and_what_to_do(filled):
    damage(filled, "UPDATE counters SET value = value + 1 WHERE name = 'steps'")
    (problem,) = filled.check()
    assert problem.key == "steps"
    assert problem.message == "the counter steps is 7, but there are 6"
    assert problem.hint


def test_what_a_policy_left_behind_is_named(filled):
    filled.set_curation(
        CurationPolicy(rules=("when step_count >= 0 then tag seen", "steps when late == false then tag in_time"))
    )
    assert filled.check() == []
    damage(filled, "UPDATE curation_policies SET ended_at = 1.0")
    assert {(one.kind, one.table) for one in filled.check(deep=False)} == set()
    assert found(filled) == {("count", "trajectories"), ("count", "steps")}
    filled.set_curation(CurationPolicy(rules=("when step_count < 0 then tag never",)))
    filled.clear_curation("train")
    assert filled.check() == []


def test_a_shallow_check_reads_no_content(filled):
    damage(filled, "UPDATE token_blocks SET ids = (SELECT ids FROM token_blocks WHERE pk = 1) WHERE pk = 2")
    assert filled.check(deep=False) == []
    assert ("hash", "token_blocks") in found(filled)


def test_progress_is_told(pool):
    finished(pool, "a", reward=1.0)
    seen = []
    assert pool.check(progress=lambda *told: seen.append(told)) == []
    assert isinstance(pool, MemoryPool) or {"counters", "references", "steps", "message_nodes"} <= {
        each[0] for each in seen
    }


def test_pages_that_sqlite_finds_damaged_are_named(sqlite_pool):
    for number in range(50):
        finished(sqlite_pool, f"t{number}", reward=1.0)
    path = sqlite_pool.path
    sqlite_pool.close()
    with sqlite3.connect(path) as connection:
        # An index that lacks a row which its table has.
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_master SET sql = replace(sql, 'created_at', 'late') WHERE name = 'steps_by_creation'"
        )
    connection.close()
    pool = SqlitePool(path)
    try:
        assert ("engine", "file") in found(pool)
    finally:
        pool.close()
