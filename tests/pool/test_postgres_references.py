"""References on PostgreSQL: triggers of statements refuse what foreign keys refuse, and nothing else."""

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import errors

from agentworld.pool import open_store, schema
from agentworld.pool.schema.references import trigger_statements
from tests.examples import examples

from .samples import finished
from .test_migrations import GUARDED

TREES = """
    CREATE SCHEMA {name};
    SET search_path TO {name};
    CREATE TABLE nodes (pk bigint PRIMARY KEY, parent bigint {key});
    CREATE TABLE leaves (pk bigint PRIMARY KEY, node bigint {key}, other bigint {key});
"""
COLUMNS = "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 ORDER BY attnum"
NUMBERS = st.integers(1, 6)
REFERENCE = st.none() | NUMBERS
ADD = {
    "nodes": st.lists(st.tuples(NUMBERS, REFERENCE), min_size=1, max_size=5),
    "leaves": st.lists(st.tuples(NUMBERS, REFERENCE, REFERENCE), min_size=1, max_size=3),
}
ADDITION = st.sampled_from(sorted(ADD)).flatmap(lambda table: st.tuples(st.just(table), ADD[table]))
DELETION = st.tuples(st.sampled_from(sorted(ADD)), st.lists(NUMBERS, min_size=1, max_size=4, unique=True))


@pytest.fixture(scope="module")
def trees(postgres):
    """A connection to two schemas with the same tables: in one of them foreign keys, in the other triggers."""
    with psycopg.connect(postgres.create_database("references"), autocommit=True) as connection:
        connection.execute(TREES.format(name="keys", key="REFERENCES nodes"))
        connection.execute(TREES.format(name="triggers", key=""))
        references = [("nodes", "parent", "nodes"), ("leaves", "node", "nodes"), ("leaves", "other", "nodes")]
        for statement in trigger_statements(references):
            connection.execute(statement)
        yield connection
    postgres.drop_database("references")


def run(connection, table, given):
    """What the server says to rows that are added, or to numbers that are deleted."""
    try:
        with connection.transaction():
            if isinstance(given[0], tuple):
                rows = ", ".join(f"({', '.join(['%s::bigint'] * len(given[0]))})" for _ in given)
                connection.execute(f"INSERT INTO {table} VALUES {rows}", [value for row in given for value in row])
            else:
                connection.execute(f"DELETE FROM {table} WHERE pk = ANY(%s)", [given])
    except psycopg.IntegrityError as error:
        return type(error)
    return None


@settings(max_examples=examples(400))
@given(st.lists(ADDITION | DELETION, min_size=1, max_size=12))
def test_triggers_say_what_keys_say(trees, statements):
    told = []
    for place in ("keys", "triggers"):
        trees.execute(f"SET search_path TO {place}")
        trees.execute("TRUNCATE leaves, nodes")
        told.append([run(trees, *one) for one in statements])
        told.append([trees.execute(f"SELECT * FROM {table} ORDER BY pk").fetchall() for table in ADD])
    assert told[:2] == told[2:]


def test_a_number_between_those_of_a_statement_is_not_one_of_them(trees):
    trees.execute("SET search_path TO triggers")
    trees.execute("TRUNCATE leaves, nodes")
    assert run(trees, "nodes", [(1, None), (3, 2)]) is errors.ForeignKeyViolation
    assert run(trees, "nodes", [(1, None), (3, 1), (2, 3)]) is None
    assert run(trees, "nodes", [(6, 4), (4, 2)]) is None


def test_triggers_look_beside_their_table_wherever_the_session_looks(trees):
    trees.execute("SET search_path TO keys")
    trees.execute("TRUNCATE keys.leaves, keys.nodes, triggers.leaves, triggers.nodes")
    assert run(trees, "keys.nodes", [(1, None)]) is None
    assert run(trees, "triggers.leaves", [(1, 1, None)]) is errors.ForeignKeyViolation
    assert run(trees, "triggers.nodes", [(2, None), (3, 2)]) is None
    assert run(trees, "triggers.leaves", [(1, 3, None)]) is None
    for path in ("keys", ""):
        trees.execute("SELECT set_config('search_path', %s, false)", [path])
        with trees.transaction():
            assert run(trees, "triggers.nodes", [3]) is errors.ForeignKeyViolation
            trees.execute("INSERT INTO triggers.nodes VALUES (4, 3)")
            trees.execute("DELETE FROM triggers.nodes WHERE pk = 4")
            assert trees.execute("SHOW search_path").fetchall() == [(path,)]


@pytest.fixture
def filled(postgres_url):
    """A connection to a pool that has rows of everything that is referred to."""
    fill(postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def filled_apart(postgres):
    """As `filled`, of a pool whose statistics no other test meets."""
    url = postgres.fresh_pool_url()
    fill(url)
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


def fill(url):
    pool = open_store(url)
    tools = [{"type": "function", "function": {"name": "look"}}]
    finished(pool, "t", steps=2, step_changes={"prompt_ids": list(range(300)), "tools": tools})
    pool.close()


REFERENCES = [
    (table.name, key.parent.name, key.column.table.name)
    for table in (schema.token_blocks, schema.message_nodes, schema.steps)
    for key in table.foreign_keys
]


@pytest.mark.parametrize(("table", "column", "target"), sorted(REFERENCES))
def test_a_pool_takes_no_row_that_refers_to_nothing(filled, table, column, target):
    names = [row[0] for row in filled.execute(COLUMNS, [table]).fetchall()]
    given = {"pk": "pk + 1000", "digest": "'other'::bytea", "step_id": "step_id || 'x'", column: "%s::bigint"}
    copied = ", ".join(given.get(name, f'"{name}"') for name in names)
    copy = f"INSERT INTO {table} SELECT {copied} FROM (SELECT * FROM {table} ORDER BY pk LIMIT 1) AS first"
    with pytest.raises(errors.ForeignKeyViolation, match="not there"):
        filled.execute(copy, [999_999])
    filled.execute(copy, filled.execute(f"SELECT pk FROM {target}").fetchone())


@pytest.mark.parametrize("table", [name for name in GUARDED if name != "steps"])
def test_a_pool_keeps_what_is_referred_to(filled, table):
    first = f"DELETE FROM {table} WHERE pk = (SELECT min(pk) FROM {table})"
    with pytest.raises(errors.ForeignKeyViolation, match="still referred to"):
        filled.execute(first)
    filled.execute("DELETE FROM steps")
    if table in ("message_nodes", "token_blocks"):
        with pytest.raises(errors.ForeignKeyViolation, match="still referred to"):
            filled.execute(first)
    filled.execute(f"DELETE FROM {table}")


# Rows that the tables of referring rows get, all of which refer to the first of what is referred to.
MANY = {"steps": {"step_id": "step_id || g"}, "message_nodes": {"digest": "g::text::bytea"}}
MANY["token_blocks"] = MANY["message_nodes"]


@pytest.mark.parametrize(("table", "column", "target"), sorted(REFERENCES))
def test_what_is_deleted_is_looked_up_where_many_rows_refer_to_few(filled_apart, table, column, target):
    filled = filled_apart
    first = filled.execute(f"SELECT min(pk) FROM {target}").fetchone()[0]
    given = {"pk": "pk + 1000 + g", **MANY[table], column: str(first)}
    names = [row[0] for row in filled.execute(COLUMNS, [table]).fetchall()]
    copied = ", ".join(given.get(name, f'"{name}"') for name in names)
    one = f"(SELECT * FROM {table} ORDER BY pk LIMIT 1) AS one"
    filled.execute(f"INSERT INTO {table} SELECT {copied} FROM {one}, generate_series(1, 5000) AS g")
    names = [row[0] for row in filled.execute(COLUMNS, [target]).fetchall()]
    unused = {"pk": "pk + 900000", "digest": "'unused'::bytea", "trajectory_id": "'unused'"}
    copied = ", ".join(unused.get(name, f'"{name}"') for name in names)
    filled.execute(f"INSERT INTO {target} SELECT {copied} FROM {target} ORDER BY pk LIMIT 1")
    filled.execute("ANALYZE")
    read = f"SELECT seq_tup_read FROM pg_stat_xact_user_tables WHERE relname = '{table}'"
    with filled.transaction():
        before = filled.execute(read).fetchall()
        filled.execute(f"DELETE FROM {target} WHERE pk = {first + 900000}")
        assert filled.execute(read).fetchall() == before
