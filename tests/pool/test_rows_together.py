"""SQLite inserts narrow rows many at a time: all arrive, in order; others are inserted singly."""

import pytest
from sqlalchemy.dialects.postgresql import insert

from agentworld.pool import schema
from agentworld.pool.sql import append_rows
from agentworld.pool.sql.statements import ROWS_TOGETHER, parameter, sql
from agentworld.pool.sqlite.database import SqliteDatabase
from agentworld.records import Step


@pytest.fixture
def connection(tmp_path):
    """The writing connection of an empty pool, in a transaction."""
    database = SqliteDatabase(tmp_path / "pool.db")
    session = database.open_writer()
    with session.transaction() as connection:
        yield connection
        connection.raw.execute("ROLLBACK")
    session.close()
    database.close()


@pytest.mark.parametrize("count", [1, ROWS_TOGETHER - 1, ROWS_TOGETHER, ROWS_TOGETHER + 1, 3 * ROWS_TOGETHER + 5])
def test_every_row_arrives_once_and_in_order(connection, count):
    rows = [(pk, "step.appended", pk / 8, f"trj_{pk}", None, "{}", "train") for pk in range(1, count + 1)]
    connection.many_in_order(append_rows.INSERT_EVENT, rows)
    found = connection.raw.execute(
        "SELECT pk, kind, at, trajectory_id, step_id, data, channel FROM events ORDER BY rowid"
    )
    assert [tuple(row) for row in found] == rows


def test_rows_together_may_refer_to_each_other_and_to_nothing_else(connection):
    from agentworld.pool.sql.forests import _ADD_BLOCK

    assert _ADD_BLOCK.together is not None
    chain = [(pk, b"%016d" % pk, pk - 1 or None, b"ids") for pk in range(1, ROWS_TOGETHER + 1)]
    connection.many_in_order(_ADD_BLOCK, chain)
    stray = [(pk + 100, b"%016d" % (pk + 100), pk + 1000, b"ids") for pk in range(ROWS_TOGETHER)]
    with pytest.raises(connection.raw.IntegrityError):
        connection.many_in_order(_ADD_BLOCK, stray)
    assert connection.raw.execute("SELECT count(*) FROM token_blocks").fetchone()[0] == ROWS_TOGETHER


def test_wide_rows_and_upserts_are_inserted_singly():
    assert append_rows.INSERT_STEP.together is None
    new = insert(schema.policies).values(model=parameter("model"), run=parameter("run"))
    assert sql(new.on_conflict_do_nothing(index_elements=["model", "run"])).together is None


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_rows_of_steps_come_in_an_order_of_their_own(engine):
    names = append_rows.INSERT_STEP.names
    assert names == append_rows.STEP_COLUMNS
    if engine == "postgres":
        insertion = append_rows.INSERT_STEP.insertion
        assert len(insertion.types) == len(names)
        assert insertion.text(0).startswith(f"INSERT INTO steps ({', '.join(names)}) SELECT unnest(")
    else:
        text = append_rows.INSERT_STEP.positional[0]
        columns, values = (part.split(")")[0].split(", ") for part in text.split("(")[1:])
        assert dict(zip(columns, values, strict=True)) == {name: f"?{at}" for at, name in enumerate(names, start=1)}


def test_a_batch_with_an_unusual_step_keeps_what_each_has(sqlite_pool):
    plain = [Step(step_id=f"s{number}", trajectory_id="t", prompt_ids=[1], response_ids=[2]) for number in range(5)]
    unusual = Step(
        step_id="odd",
        trajectory_id="t",
        prompt_ids=[1],
        response_ids=[2, 3],
        response_mask=[1, 0],
        supersedes="s0",
        fork_reason="retry",
        labels={"a": "b"},
        rewards={"x": 1.0},
        excluded_reason="not wanted",
    )
    sqlite_pool.append_steps(plain[:3])
    sqlite_pool.append_steps([plain[3], unusual, plain[4]])
    found = sqlite_pool.get_step("odd", include=("tokens",))
    others = [sqlite_pool.get_step(one.step_id, include=("tokens",)) for one in plain[1:]]
    for name in ("response_mask", "supersedes", "fork_reason", "labels", "rewards", "excluded_reason"):
        assert getattr(found, name) == getattr(unusual, name)
    for other in others:
        assert other.response_mask == [1]
        assert (other.supersedes, other.fork_reason, other.labels, other.rewards) == (None, None, {}, {})
