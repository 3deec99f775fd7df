"""Which plans of queries are kept."""

import gc
import weakref

from agentworld.pool.sql.plans import plan_page


def kept(texts):
    """How many of the plans of these expressions are there after all were asked for."""
    plans = [weakref.ref(plan_page("trajectories", text, (), "oldest")) for text in texts]
    gc.collect()
    return sum(plan() is not None for plan in plans)


def test_of_long_expressions_few_plans_are_kept():
    lists = [", ".join(f"'kept-{number}-{at}'" for at in range(100)) for number in range(40)]
    assert 0 < kept([f"trajectory_id in ({names})" for names in lists]) <= 8
    assert kept([f"reward == {number}.125" for number in range(40)]) == 40
