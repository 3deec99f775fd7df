"""Which plans of queries are kept, and that indexes of the rows that have a value are used."""

import gc
import sqlite3
import weakref

import pytest

from agentworld.pool.sorting import Sort
from agentworld.pool.sql import groups, keeping, pulling, sorted_pages, store_state
from agentworld.pool.sql.plans import plan_page
from agentworld.pool.sqlite import SqlitePool


def kept(texts):
    """How many of the plans of these expressions are there after all were asked for."""
    plans = [weakref.ref(plan_page("trajectories", text, (), "oldest")) for text in texts]
    gc.collect()
    return sum(plan() is not None for plan in plans)


def test_of_long_expressions_few_plans_are_kept():
    lists = [", ".join(f"'kept-{number}-{at}'" for at in range(100)) for number in range(40)]
    assert 0 < kept([f"trajectory_id in ({names})" for names in lists]) <= 8
    assert kept([f"reward == {number}.125" for number in range(40)]) == 40


PARTIAL = {
    "trajectories_by_group": [groups._MEMBERS, pulling._MEMBERS],
    "trajectories_by_user": [keeping._OF_USER],
    "trajectories_by_policy": [store_state._POLICIES],
    "trajectories_by_ready_seq": [pulling._OF_TRAJECTORIES],
    "groups_by_ready_seq": [pulling._OF_GROUPS],
}
for _name, _index in (("reward", "reward"), ("group_id", "group"), ("user", "user")):
    for _down in (False, True):
        of_value = PARTIAL.setdefault(f"trajectories_by_{_index}", [])
        of_value += [sorted_pages._entries(Sort(_name, _down), first) for first in (False, True)]


@pytest.fixture(scope="module")
def explain(tmp_path_factory):
    """The plan of a statement in a pool that nothing is known of."""
    path = tmp_path_factory.mktemp("plans") / "pool.db"
    SqlitePool(path).close()
    connection = sqlite3.connect(path)

    def of(statement):
        text = statement.text("sqlite")
        given = dict.fromkeys(statement.names, 1) | {"ids": "[]", "rows": "[]"}
        return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", given)]

    yield of
    connection.close()


@pytest.mark.parametrize("index", PARTIAL)
def test_an_index_of_the_rows_that_have_a_value_is_used(explain, index):
    for statement in PARTIAL[index]:
        plan = explain(statement)
        assert any(f"INDEX {index}" in line for line in plan), (statement.text("sqlite"), plan)
        assert not any(line.startswith("SCAN trajectories USING INTEGER") for line in plan), plan


def test_rows_without_a_value_are_looked_for_by_their_numbers(explain):
    for name in ("reward", "group_id", "user"):
        [line] = explain(sorted_pages._rows(Sort(name, False)))
        assert line == "SEARCH trajectories USING INTEGER PRIMARY KEY (rowid>?)"
