"""An open pool in a process that was forked, as loaders of training data fork: it says so, and disturbs nobody."""

import pytest

from agentworld.errors import PoolError
from agentworld.pool import open_store
from agentworld.records import BatchSpec
from tests.forked import forked
from tests.pool.samples import finished, ids, step

SPEC = BatchSpec(method="sft", size=1)
CALLS = {
    "read": lambda pool: pool.list_steps(),
    "stats": lambda pool: pool.stats(),
    "write": lambda pool: pool.append_steps([step("t", step_id="child")]),
    "lease": lambda pool: pool.lease(SPEC, "c"),
    "events": lambda pool: pool.events(),
    "watch": lambda pool: pool.watch(print),
    "consume": lambda pool: next(iter(pool.consumer("c").stream(SPEC))),
}


@pytest.fixture(params=["sqlite", "postgres"])
def pool(request):
    pool = request.getfixturevalue(f"{request.param}_pool")
    finished(pool, "t", reward=1.0)
    return pool


def test_an_inherited_pool_refuses_each_call_and_goes_on_where_it_was_opened(pool):
    def work():
        said = {}
        for name, call in CALLS.items():
            try:
                said[name] = str(call(pool))
            except PoolError as error:
                said[name] = error.one_line()
        pool.close()  # As the end of a `with` around the fork does.
        return said

    said = forked(work)
    assert {name for name, each in said.items() if "forked from" in each and "Open the pool in the" in each} == set(
        CALLS
    )
    assert pool.append_steps([step("t2", step_id="parent")])[0].outcome == "stored"
    assert "parent" in ids(pool.list_steps())
    assert pool.lease(SPEC, "c") is not None
    assert pool.check() == []


def test_a_pool_that_is_opened_there_is_used_there(pool):
    if not pool.url.startswith("sqlite"):
        pytest.skip("the URL of a server is shown without its password")

    url = pool.url

    def work():
        own = open_store(url)
        own.append_steps([step("t3", step_id="child")])
        found = ids(own.list_steps())
        own.close()
        return found

    assert "child" in forked(work)
    assert "child" in ids(pool.list_steps())
