"""Several processes that open, migrate and write a pool at the same moment."""

import multiprocessing

import pytest

from agentworld.pool import open_store
from tests.faults.workers import noted, write_some
from tests.pool.test_old_schemas import restore, restore_on_postgres
from tests.power.survivors import listed

OPENERS, COUNT = 3, 10
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


def check_all_is_there(url, told, already):
    """The pool holds what the openers were told and `already` steps besides, each once, and is sound."""
    pool = open_store(url)
    steps = [step.step_id for step in listed(pool)]
    assert len(steps) == len(set(steps)) == OPENERS * COUNT + already
    assert len(told) == OPENERS * COUNT
    assert told <= set(steps)
    assert pool.check() == []
    pool.close()


BEFORE = pytest.mark.parametrize(("before", "already"), [("nothing", 0), ("schema_0001", 7)])


@BEFORE
def test_several_processes_open_and_migrate_one_file(tmp_path, before, already):
    path = tmp_path / "pool.db"
    if before != "nothing":
        restore(before, path)
    url = f"sqlite:///{path}"
    check_all_is_there(url, all_at_once(url, tmp_path), already)


@BEFORE
def test_several_processes_open_and_migrate_one_database(postgres, tmp_path, before, already):
    url = postgres.create_database("openers")
    if before != "nothing":
        restore_on_postgres(before, url, tmp_path / "old.db")
    check_all_is_there(url, all_at_once(url, tmp_path), already)
    postgres.drop_database("openers")
