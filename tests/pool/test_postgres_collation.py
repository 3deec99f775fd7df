"""Texts are ordered by their code points, in a database of any language.

The PostgreSQL of the tests knows no other order, so what fixes it is looked at: the columns, and the SQL of `where`.
"""

import pytest
from sqlalchemy import select

from agentworld.pool import schema
from agentworld.pool.sql import where
from agentworld.pool.sql.statements import compiled
from agentworld.query import parse

ANY_COLUMN = "SELECT count(*) FROM information_schema.columns WHERE table_schema = 'public' AND data_type = 'text'"


def test_every_text_column_has_its_order_fixed(postgres, postgres_url):
    database = postgres_url.rpartition("/")[2]
    total = postgres.execute(ANY_COLUMN, database)[0][0]
    assert postgres.execute(f"{ANY_COLUMN} AND collation_name = 'C'", database) == [(total,)]
    assert total > 100


@pytest.mark.parametrize(
    "expression",
    ["trajectory_id > 'Z'", "metadata.name > 'Z'", "metadata.name like 'z%'", "task.a.b <= 'é'", "agent like 'a%'"],
)
def test_every_comparison_of_where_does_so(expression):
    condition = where.condition(parse(expression, "trajectories"), "trajectories")
    text = compiled(select(schema.trajectories.c.pk).where(condition)).text("postgres")
    assert 'COLLATE "C"' in text.partition("WHERE")[2]
