"""Lists of keys are looked up one by one, whatever the engines know of their tables."""

import re

import pytest
from sqlalchemy import select

from agentworld.bench.filling import STARTED, fill
from agentworld.forest import BLOCK_SIZE
from agentworld.pool import schema
from agentworld.pool.postgres import PostgresPool
from agentworld.pool.sql import items, pieces, units
from agentworld.pool.sql.lookups import among_integers, among_texts
from agentworld.pool.sql.pages import explain_page
from agentworld.pool.sql.statements import Explained, json_list, parameter, sql
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import Step
from agentworld.records.ids import DIGEST_SIZE

_s, _t = schema.steps.c, schema.trajectories.c
WISH = units.Wish(None, ("tokens",), ("ready",))
STATEMENTS = {
    "alone": (sql(select(_s.step_id).where(among_integers(_s.pk, "rows"))), "steps"),
    "beside another": (sql(select(_s.pk).where(among_texts(_s.step_id, "rows"), _s.late == parameter("in"))), "steps"),
    "steps of a lease": (units._step_sql(WISH), "steps"),
    "trajectories of a lease": (units._trajectory_sql(WISH), "trajectories"),
    "content of a batch": (items._STEPS, "steps"),
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_sqlite_reads_no_table_for_a_list_of_keys(sqlite_pool, name):
    statement, table = STATEMENTS[name]
    with sqlite_pool._database.reading() as reader:
        plan = [
            row["detail"]
            for row in reader.execute(Explained(statement), {"rows": json_list([1, 2]), "in": 0, "in_channel": "train"})
        ]
    assert any(line.startswith(f"SEARCH {table}") for line in plan), plan
    assert not any(line.startswith(("SCAN steps", "SCAN trajectories")) for line in plan), plan


def test_postgres_finds_times_by_blocks_alone(postgres):
    """Whatever it knows of the table: a block is read through at most, never the table."""
    url = postgres.create_database("times")
    pool = PostgresPool(url)
    try:
        fill(pool, 10_000, seed=3)
        for _ in range(2):
            with pool._database.reading() as reader:
                plan = "\n".join(explain_page(reader, "steps", f"created_at >= {STARTED + 900}", 0.0))
            assert plan.startswith("by blocks"), plan
            assert "steps_by_creation" in plan, plan
            assert not re.search("Seq Scan on steps|Join|Nested Loop", plan), plan
            postgres.execute("ANALYZE", "times")
    finally:
        pool.close()
        postgres.drop_database("times")


@pytest.fixture(scope="module")
def loaded(postgres):
    """A pool after a bulk load. What tests before had in the same tables would be in the statistics."""
    pool = PostgresPool(postgres.fresh_pool_url())
    fill(pool, 20_000, seed=3)
    yield pool
    pool.close()


@pytest.mark.parametrize(
    "where",
    ["trajectory_id == 't300'", "group_id == 'g7' and step_index < 9", "user == 'u77'", "status == 'failed'"],
)
def test_postgres_looks_up_steps_by_the_keys_of_trajectories(loaded, where):
    """First the keys, then their steps, whatever the statistics say: there are none after a bulk load."""
    with loaded._database.reading() as reader:
        plan = "\n".join(explain_page(reader, "steps", where, 0.0))
    first, _, _ = plan.partition("then each row of these")
    assert "InitPlan" in first, plan
    assert "steps_by_trajectory" in first, plan
    assert not re.search("Seq Scan on steps|Join|Nested Loop|steps_pkey", first), plan


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_a_long_sequence_that_is_there_is_found_by_one_query(engine, request, monkeypatch):
    """However many blocks it has, and each block by the index."""
    pool = request.getfixturevalue(f"{engine}_pool")
    ids = list(range(BLOCK_SIZE * 60))
    pool.append_steps([Step(step_id="a", trajectory_id="one", prompt_ids=ids, response_ids=[1])])
    pool._appender._forests.clear()  # As of another process, which does not know that it is there.
    asked, execute = [], Transaction.execute

    def noted(txn, statement, parameters=None):
        asked.append(statement)
        return execute(txn, statement, parameters)

    monkeypatch.setattr(Transaction, "execute", noted)
    pool.append_steps([Step(step_id="b", trajectory_id="other", prompt_ids=ids, response_ids=[1])])
    finder = pieces.finder(schema.token_blocks)
    assert asked.count(finder) == 1
    assert pool.stats().tokens_stored == 60 * BLOCK_SIZE + 2  # Two tails of one id.
    how = "EXPLAIN QUERY PLAN " if engine == "sqlite" else "EXPLAIN ANALYZE "  # Else PostgreSQL tells half of it.
    with pool._database.reading() as reader:
        named = {"begins": '{"0": 0}', "digests": bytes(DIGEST_SIZE)}
        if engine == "postgres":
            reader.raw.execute("SET LOCAL enable_seqscan = off")  # As few rows as these need no index.
        lines = reader.raw.execute(how + finder.text(engine), named).fetchall()
    plan = "\n".join(line["detail"] if engine == "sqlite" else line[0] for line in lines)
    assert "token_blocks_by_parent" in plan, plan
    assert not re.search("(SCAN|Seq Scan on) token_blocks", plan), plan
