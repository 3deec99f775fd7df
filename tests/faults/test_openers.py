"""Several processes that open, migrate and write a pool at the same moment."""

import multiprocessing

import pytest

from agentworld.pool import open_store
from tests.faults.workers import noted, write_some
from tests.pool.test_old_schemas import restore
from tests.power.survivors import listed

OPENERS, COUNT = 4, 10
processes = multiprocessing.get_context("forkserver")


def all_at_once(url, folder):
    """What several openers were told was stored; they all end well."""
    processes.set_forkserver_preload(["tests.faults.workers"])
    barrier = processes.Barrier(OPENERS)
    openers = [
        processes.Process(target=write_some, args=(url, barrier, str(folder / f"notes-{name}"), f"by-{name}", COUNT))
        for name in range(OPENERS)
    ]
    for opener in openers:
        opener.start()
    for opener in openers:
        opener.join(60)
    assert [opener.exitcode for opener in openers] == [0] * OPENERS
    return {words[1] for name in range(OPENERS) for words in noted(folder / f"notes-{name}", "step")}


@pytest.mark.parametrize("before", ["nothing", "schema_0001"])
def test_several_processes_open_and_migrate_one_file(tmp_path, before):
    path = tmp_path / "pool.db"
    if before != "nothing":
        restore(before, path)
    told = all_at_once(f"sqlite:///{path}", tmp_path)
    assert len(told) == OPENERS * COUNT
    pool = open_store(f"sqlite:///{path}")
    steps = [step for step in listed(pool) if step.trajectory_id.startswith("by-")]
    assert len(steps) == len(told)
    assert {step.step_id for step in steps} == told
    pool.close()


def test_several_processes_open_and_make_one_database(postgres, tmp_path):
    url = postgres.create_database("many_openers")
    told = all_at_once(url, tmp_path)
    assert len(told) == OPENERS * COUNT
    pool = open_store(url)
    steps = listed(pool)
    assert len(steps) == len(told)
    assert {step.step_id for step in steps} == told
    pool.close()
    postgres.drop_database("many_openers")
