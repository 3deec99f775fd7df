"""How leases reach the database: by look-ups alone, and with nothing left behind where reading fails."""

import json
import re

import psycopg
import pytest

from agentworld.pool.sql import backlog, batch_reading, batch_rows, items, pairs, pulling, units
from agentworld.pool.sql.statements import Statement
from agentworld.pool.sql.units import Wish
from agentworld.records import BatchSpec

from .samples import finished, group

WISH = Wish("reward > 0.5", ("tokens", "annotation.x", "label.y"), ("ready",))
BUILT = {
    "trajectories": units._trajectory_sql(WISH),
    "steps": units._step_sql(Wish("step_index > 1", ("tokens",), ("ready",))),
    "members": units._members_sql(WISH),
    "compared trajectories": pairs._trajectories_sql(WISH),
    "compared steps": pairs._steps_sql(WISH),
}


def statements():
    for module in (backlog, batch_rows, items, pairs, pulling, units):
        for name, value in vars(module).items():
            found = value.values() if isinstance(value, dict) else [value]
            for number, one in enumerate(found):
                parts = one if isinstance(one, tuple) else [one]
                for part in parts:
                    if isinstance(part, Statement):
                        yield f"{module.__name__.rpartition('.')[2]}{name}.{number}", part
    yield from BUILT.items()


@pytest.mark.parametrize(("name", "statement"), [pytest.param(*pair, id=pair[0]) for pair in statements()])
def test_no_statement_of_a_lease_reads_a_table(sqlite_pool, name, statement):
    """Only what an index finds: so a lease takes as long in a large pool as in a small one."""
    text = statement.text("sqlite")
    values = dict.fromkeys(re.findall(r":(\w+)", text), 1) | {"rows": "[1]", "ids": "[]", "keys": "[]", "names": "[]"}
    with sqlite_pool._database.reading() as reader:
        plan = [row[3] for row in reader.raw.execute(f"EXPLAIN QUERY PLAN {text}", values)]
    small = re.compile(r"SCAN (anon_\d+|listed|json_each|policies)\b|SCAN \(subquery|SCAN CONSTANT")
    assert [line for line in plan if line.startswith("SCAN") and not small.match(line)] == []
    # A prefix that every unit of the consumer shares is no look-up either. SQLite plans to look for children of a
    # consumer that is renamed, which nobody does.
    assert (
        text.startswith("INSERT INTO consumers")
        or [line for line in plan if "deliveries" in line and "key=?" not in line and "poisoned" not in line] == []
    )


@pytest.mark.parametrize("has_statistics", [False, True])
def test_postgres_finds_units_of_a_backlog_by_its_key_or_their_order(postgres, has_statistics):
    """Also before a table was first analysed, when no index looks better than another to it."""
    asked = {name: getattr(backlog, f"_{name.upper()}") for name in ("named", "there", "take_out", "remove", "marked")}
    asked |= backlog._PAGES
    by_order = {"fifo": "by_place", "freshest": "by_place", "priority": "by_rank", "random": "by_shuffle"}
    index = dict.fromkeys(asked, "pkey") | by_order | {"marked": "by_mark"}
    backlog_of_c = """
        INSERT INTO backlog SELECT 'c', 'step', 'train', md5(i::text), i, i, -i, (i * 7919) % 20011, i / 512
        FROM generate_series(1, 20000) AS numbers(i)
    """
    bound = {"consumer": "c", "unit": "step", "channel": "train", "keys": json.dumps([f"{n:032x}" for n in range(512)])}
    bound |= {"after": 7, "after_first": 0, "after_place": 9_000, "limit": 16}
    with psycopg.connect(postgres.fresh_pool_url(), autocommit=True) as raw:
        raw.execute("INSERT INTO consumers VALUES ('c', 0)")
        raw.execute(backlog_of_c)
        if has_statistics:
            raw.execute("ANALYZE")
        found = {}
        for name, statement in asked.items():
            text = statement.text("postgres")
            values = {key: bound[key] for key in re.findall(r"%\((\w+)\)s", text)}
            plan = "\n".join(row[0] for row in raw.execute(f"EXPLAIN {text}", values))
            assert "Seq Scan on backlog" not in plan, plan
            found[name] = set(re.findall(r"backlog_(\w+)", plan))
    assert found == {name: {expected} for name, expected in index.items()}


@pytest.mark.parametrize("kind", ["trajectory", "group"])
def test_a_lease_that_cannot_be_read_is_given_back_at_once(sqlite_pool, monkeypatch, kind):
    finished(sqlite_pool, "t", reward=1.0)
    group(sqlite_pool, "g", [1.0])
    spec = BatchSpec(method="reinforce", size=2) if kind == "trajectory" else BatchSpec(method="grpo", groups=1)

    def fail(*_):
        raise RuntimeError("the disk is gone")

    with monkeypatch.context() as broken:
        broken.setattr(batch_reading, "read_items", fail)
        with pytest.raises(RuntimeError):
            sqlite_pool.lease(spec, "c")
    assert sqlite_pool.stats().batches == {"released": 1}
    assert sqlite_pool.lease(spec, "c").items[0].delivery_count == 2
