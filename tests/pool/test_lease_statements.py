"""How leases reach the database: by look-ups alone, and with nothing left behind where reading fails."""

import re

import pytest

from agentworld.pool.sql import backlog, batch_rows, items, leases, pairs, pulling, units
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


@pytest.mark.parametrize("kind", ["trajectory", "group"])
def test_a_lease_that_cannot_be_read_is_given_back_at_once(sqlite_pool, monkeypatch, kind):
    finished(sqlite_pool, "t", reward=1.0)
    group(sqlite_pool, "g", [1.0])
    spec = BatchSpec(method="reinforce", size=2) if kind == "trajectory" else BatchSpec(method="grpo", groups=1)

    def fail(*_):
        raise RuntimeError("the disk is gone")

    with monkeypatch.context() as broken:
        broken.setattr(leases, "read_items", fail)
        with pytest.raises(RuntimeError):
            sqlite_pool.lease(spec, "c")
    assert sqlite_pool.stats().batches == {"released": 1}
    assert sqlite_pool.lease(spec, "c").items[0].delivery_count == 2
