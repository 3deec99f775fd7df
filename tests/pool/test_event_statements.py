"""Events of one channel or trajectory are found by an index, however many others there are."""

import re

import psycopg
import pytest

from agentworld.pool.sql import store_signals

ASKED = {
    "channel": (store_signals._EVENTS_IN_CHANNEL, "events_by_channel"),
    "trajectory": (store_signals._EVENTS_OF[False], "events_by_trajectory"),
    "both": (store_signals._EVENTS_OF[True], "events_by_trajectory"),
}
BOUND = {"after": 5, "limit": 10, "channel": "val", "id": "mine", "end_of_id": "mine", "nothing": ""}
FILL = """
    INSERT INTO events (pk, kind, at, trajectory_id, channel)
    SELECT i, 'step.appended', 0, CASE WHEN i % 2000 = 0 THEN 'mine' ELSE 't' || i % 97 END,
           CASE WHEN i % 2000 = 0 THEN 'val' ELSE 'train' END
"""


@pytest.mark.parametrize("name", ASKED)
def test_sqlite_finds_them_by_their_index(sqlite_pool, name):
    statement, index = ASKED[name]
    with sqlite_pool._database.reading() as reader:
        plan = [row[3] for row in reader.raw.execute(f"EXPLAIN QUERY PLAN {statement.text('sqlite')}", BOUND)]
    assert len(plan) == 1  # Neither another table nor an order made anew.
    assert plan[0].startswith(f"SEARCH events USING INDEX {index} ("), plan


@pytest.mark.parametrize("name", ASKED)
def test_postgres_finds_them_by_their_index(postgres, name):
    statement, index = ASKED[name]
    with psycopg.connect(postgres.fresh_pool_url(), autocommit=True) as raw:
        raw.execute(f"{FILL} FROM generate_series(1, 20000) AS numbers(i)")
        raw.execute("ANALYZE events")
        text = statement.text("postgres")
        values = {key: BOUND[key] for key in re.findall(r"%\((\w+)\)s", text)}
        plan = "\n".join(row[0] for row in raw.execute(f"EXPLAIN ANALYZE {text}", values))
    assert index in plan, plan
    assert "Removed by Filter" not in plan, plan
